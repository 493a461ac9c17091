#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/transport/tcp/transport.hpp>

#include "support/forked_child.hpp"
#include "transport/drive.hpp"

// Worlds of ranks that reach each other over TCP on loopback: threads of the test or processes forked from it.

namespace tcp_world {

using namespace std::chrono_literals;
using tutti::errc;
using tutti::status;

struct plan {
  std::vector<tutti::tcp_listener> listeners;
  tutti::roster peers;
  std::vector<tutti::tcp_job> jobs;
  tutti::tcp_options options{};
  std::vector<int> connections{};  // by rank, where they differ

  /// Every second rank pretends to be another machine, as those that connect to it see it, or is where `odd` says.
  explicit plan(int ranks, tutti::wire::protection asked = tutti::wire::protection::none,
                const char* odd = "127.0.0.2") {
    for (int r = 0; r < ranks; ++r) {
      listeners.emplace_back(r % 2 == 0 ? "127.0.0.1" : odd, asked);
      tutti::rank_info p;
      p.rank = r;
      p.local_size = ranks;
      p.host = r % 2 == 0 ? "a" : "b";
      p.pid = 1000 + r;
      p.endpoint = listeners.back().endpoint();
      peers.push_back(p);
      jobs.push_back({tutti::wire::job_id::of("test"), 1, {}});
    }
  }
  static plan on_one_machine(int ranks) { return plan{ranks, tutti::wire::protection::none, "127.0.0.1"}; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(peers.size()); }
  std::unique_ptr<tutti::tcp_transport> transport(int r) {
    const auto i = static_cast<std::size_t>(r);
    auto own = options;
    if (!connections.empty()) own.connections = connections[i];
    return std::make_unique<tutti::tcp_transport>(std::move(listeners[i]), peers, r, jobs[i], own);
  }
};

using driver = drive::rank_driver<tutti::tcp_transport>;

/// Runs `body(driver)` as every rank, in threads; the strings that they return, by rank.
template <class Body>
std::vector<std::string> in_threads(plan& p, Body body) {
  std::vector<std::string> said(static_cast<std::size_t>(p.size()));
  std::vector<std::thread> threads;
  for (int r = 0; r < p.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        const auto transport = p.transport(r);
        driver d{*transport};
        said[static_cast<std::size_t>(r)] = body(d);
      } catch (const std::exception& e) {
        said[static_cast<std::size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return said;
}

/// An outcome as the exit code of a process: what failed and who is to blame for it.
constexpr int code_of(errc code, int peer) noexcept { return 1 + static_cast<int>(code) * 16 + (peer + 1) % 16; }
constexpr int code_of(status s) noexcept { return s.ok() ? 0 : code_of(s.code, s.peer); }

inline std::string to_string(int exit_code) {
  if (exit_code <= 0 || exit_code == tutti_test::forked_child::threw) return "exit code " + std::to_string(exit_code);
  const auto code = static_cast<errc>((exit_code - 1) / 16);
  return tutti::category().message(static_cast<int>(code)) + ", rank " + std::to_string((exit_code - 1) % 16 - 1);
}

/// Runs `body(driver)`, which returns an exit code, as every rank in a process of its own.
template <class Body>
std::vector<tutti_test::forked_child> in_processes(plan& p, Body body) {
  std::vector<tutti_test::forked_child> children;
  for (int r = 0; r < p.size(); ++r)
    children.emplace_back([&] {
      const auto transport = p.transport(r);
      p.listeners.clear();  // a dead rank's port must not stay open here
      driver d{*transport};
      return body(d);
    });
  p.listeners.clear();
  return children;
}

/// Messages of several sizes round a ring and across it, until something fails or `rounds` are done.
inline status work(driver& d, int rounds) {
  auto& t = d.transport();
  const int n = t.size(), next = (t.rank() + 1) % n, previous = (t.rank() + n - 1) % n;
  constexpr std::array<std::size_t, 3> sizes{8, 40000, 300000};
  std::vector<std::byte> in(sizes.back());
  for (int i = 0; i < rounds; ++i) {
    const auto size = sizes[static_cast<std::size_t>(i) % sizes.size()];
    const auto tag = static_cast<std::uint64_t>(i) << 24;
    const auto out = drive::pattern(size, static_cast<std::uint64_t>(t.rank() * 1000 + i));
    const auto a = d.send(next, tag, out), b = d.recv(previous, tag, std::span{in}.first(size));
    if (const status s = d.wait(*b); !s.ok()) return s;
    if (const status s = d.wait(*a); !s.ok()) return s;
    const auto right = drive::pattern(size, static_cast<std::uint64_t>(previous * 1000 + i));
    if (!std::equal(right.begin(), right.end(), in.begin())) return {errc::mismatch, 0, 14, 0};
    if (const status s = d.run(drive::barrier(t, static_cast<std::uint64_t>(i) << 18 | 1u << 17)); !s.ok()) return s;
  }
  return {};
}

/// A page that processes share.
template <class T>
class shared_page {
 public:
  shared_page() : value_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (value_ == MAP_FAILED) throw std::bad_alloc{};
    ::new (value_) T{};
  }
  shared_page(const shared_page&) = delete;
  ~shared_page() { ::munmap(value_, sizeof(T)); }
  T* operator->() const noexcept { return static_cast<T*>(value_); }
  T& operator*() const noexcept { return *static_cast<T*>(value_); }

 private:
  void* value_;
};

}  // namespace tcp_world
