#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include <tutti/os/resolve.hpp>
#include <tutti/store/tcp_store.hpp>

#include <support/connect_from.hpp>
#include <support/failure_of.hpp>
#include <support/pretended_hmac.hpp>
#include <support/store_conformance.hpp>

// Hosts, clients and unauthenticated connections of a tcp_store, as its tests and those of its server need them.
namespace tutti_test {

using namespace std::chrono_literals;
using tutti::after;
using tutti::errc;
using tutti::tcp_store;
using tutti::tcp_store_options;

inline bool came(tcp_store& host, std::uint32_t rank) {
  const auto& ranks = host.server()->ranks();
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

inline tutti::os::endpoint loopback() { return tutti::os::resolve("127.0.0.1", 0).front(); }

inline tutti::os::endpoint fresh_unix_name() {
  static std::atomic<int> number{0};
  return tutti::os::endpoint::unix_socket("@tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number));
}

inline tcp_store_options options_of(int rank, int world, const char* secret_digit = nullptr) {
  tcp_store_options o;
  o.rank = rank;
  o.world = world;
  o.job = tutti::wire::job_id::of("test");
  o.timeout = 60s;
  if (secret_digit != nullptr) {
    std::string digits;
    for (int i = 0; i < 64; ++i) digits += secret_digit;
    o.secret = tutti::wire::secret::from_hex(digits);
  }
  return o;
}

// A host that is served by a thread of its own, so that a test can be one of its clients.
class running_host {
 public:
  explicit running_host(tcp_store_options o = options_of(0, 4), const tutti::os::endpoint& where = loopback())
      : store_(tcp_store::host(where, std::move(o))),
        address_(store_.address()),
        thread_([this] { store_.linger(after(120s), [this] { return stop_.load(); }); }) {}
  running_host(const running_host&) = delete;
  ~running_host() { stop(); }

  // Ends the thread, so that the test may look at the host itself.
  tcp_store& stop() {
    stop_.store(true);
    if (thread_.joinable()) {
      // Wakes the host, which may sleep.
      static_cast<void>(tutti::os::start_connect(store_.server()->endpoint()));
      thread_.join();
    }
    return store_;
  }

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] tutti::os::endpoint endpoint() const { return store_endpoint(address_); }
  static tutti::os::endpoint store_endpoint(const std::string& address) {
    const auto [host, port] = tutti::os::split_host_port(address);
    return tutti::os::resolve(host, port).front();
  }
  [[nodiscard]] tcp_store connect(int rank = 1, int world = 4) const {
    return tcp_store::connect(address_, options_of(rank, world), after(30s));
  }

 private:
  tcp_store store_;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// `from` is an address of this machine.
inline tutti::os::fd raw_connection(const tutti::os::endpoint& where, const std::string& from = {}) {
  auto r = from.empty() ? tutti::os::start_connect(where) : tutti_test::connect_from(from, where);
  REQUIRE(r.socket);
  const auto until = after(20s);
  int result = 0;
  while ((result = tutti::os::connect_result(r.socket.native())) == EINPROGRESS && tutti::clock::now() < until) {
    tutti::os::wait_ready(r.socket.native(), tutti::os::interest::write, 10ms);
  }
  REQUIRE(result == 0);
  return std::move(r.socket);
}

// Reads until the other side ends the connection; false when it does not.
inline bool is_closed_soon(int socket, tutti::duration patience = 20s) {
  std::array<std::byte, 4096> sink;
  const auto until = after(patience);
  for (;;) {
    const auto r = tutti::os::receive_some(socket, sink);
    if (r.closed) return true;
    if (!r.would_block()) continue;
    if (tutti::clock::now() >= until) return false;
    tutti::os::wait_ready(socket, tutti::os::interest::read, tutti::remaining(until));
  }
}

inline std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator{"/proc/self/fd"}) ++n;
  return n;
}

template <class Where>
struct tcp_family {
  static inline const char* digit = nullptr;

  // As a client; the host does nothing else than serving.
  template <class Body>
  void alone(Body body) {
    const auto o = options_of(0, 2, Where::digit);
    const running_host host{o, Where::endpoint()};
    auto client = tcp_store::connect(host.address(), options_of(1, 2, Where::digit), after(30s));
    body(client);
  }
  template <class Body>
  void run(int ranks, Body body) {
    const pretended_hmac_scope hmac;
    auto listener = tutti::os::listen_on(Where::endpoint());
    const std::string address = tutti::os::local_endpoint(listener.native()).to_string();
    on_threads(ranks, [&](int rank) {
      const auto o = options_of(rank, ranks, Where::digit);
      auto store = rank == 0 ? tcp_store::host(std::move(listener), o) : tcp_store::connect(address, o, after(30s));
      body(rank, store);
      CHECK(store.linger(after(60s)));
    });
  }
};

struct over_tcp {
  static constexpr const char* digit = nullptr;
  static tutti::os::endpoint endpoint() { return loopback(); }
};
struct over_tcp_with_secret {
  static constexpr const char* digit = "a";
  static tutti::os::endpoint endpoint() { return loopback(); }
};
struct over_unix {
  static constexpr const char* digit = nullptr;
  static tutti::os::endpoint endpoint() { return fresh_unix_name(); }
};

struct host_alone_family : tcp_family<over_unix> {
  template <class Body>
  void alone(Body body) {
    auto host = tcp_store::host(loopback(), options_of(0, 1));
    body(host);
  }
};

}  // namespace tutti_test
