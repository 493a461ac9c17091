// Measures init() while strangers hold connections to the port at which rank 0 listens; bench/flood.py runs both parts.
//
//   bench-flood join                                    joins a world and prints the milliseconds that init() took
//   bench-flood hold COUNT FROM ADDRESS PORT silent     holds COUNT connections from the address FROM, opens a new one
//                                   or     claims      for each that is closed, and prints how many it has opened
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/bootstrap/openssl.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/tutti.hpp>
#include <tutti/wire/handshake_messages.hpp>

namespace {

int join() {
  const auto start = std::chrono::steady_clock::now();
  auto world = tutti::init();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("init %.3f\n", took.count());
  std::fflush(stdout);
  world.barrier().wait();
  return 0;
}

volatile sig_atomic_t stopped = 0;

/// Connections without the job's secret, as many as somebody who wants to keep ranks out would hold.
class flood {
 public:
  flood(std::size_t count, const tutti::os::endpoint& from, const tutti::os::endpoint& to, std::vector<std::byte> words)
      : from_(from), to_(to), words_(std::move(words)), sockets_(count) {}

  void run() {
    wait_for_listener();
    for (std::size_t i = 0; i < sockets_.size(); ++i) open(i);
    std::array<std::byte, 256> sink;
    while (stopped == 0) {
      const auto ready = poller_.wait(std::chrono::milliseconds{10});
      for (const auto& r : ready) {
        const auto got = tutti::os::receive_some(sockets_[r.token].native(), sink);
        if (got.closed || r.hung_up) open(r.token);
      }
      if (!missing_.empty()) {
        const auto again = std::exchange(missing_, {});
        for (const std::size_t i : again) open(i);
      }
    }
  }
  [[nodiscard]] unsigned long opened() const { return opened_; }

 private:
  [[nodiscard]] tutti::os::socket_result connect() const {
    tutti::os::fd s{::socket(from_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    const int one = 1;
    if (s) ::setsockopt(s.native(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (!s || ::bind(s.native(), from_.native(), from_.native_bytes()) != 0) return {{}, errno};
    if (::connect(s.native(), to_.native(), to_.native_bytes()) != 0 && errno != EINPROGRESS) return {{}, errno};
    return {std::move(s), 0};
  }
  void wait_for_listener() const {
    while (stopped == 0) {
      const auto r = connect();
      if (r.socket && tutti::os::connect_result(r.socket.native()) != ECONNREFUSED) return;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }
  void open(std::size_t i) {
    sockets_[i].reset();
    auto r = connect();
    if (!r.socket) return missing_.push_back(i);
    ++opened_;
    sockets_[i] = std::move(r.socket);
    static_cast<void>(tutti::os::send_some(sockets_[i].native(), words_));
    poller_.add(sockets_[i].native(), tutti::os::interest::read, i);
  }

  tutti::os::endpoint from_, to_;
  std::vector<std::byte> words_;
  std::vector<tutti::os::fd> sockets_;
  std::vector<std::size_t> missing_;
  tutti::os::poller poller_;
  unsigned long opened_ = 0;
};

int hold(std::size_t count, const std::string& from, const std::string& address, int port, bool claims) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  struct sigaction stop{};
  stop.sa_handler = [](int) { stopped = 1; };
  ::sigaction(SIGTERM, &stop, nullptr);

  std::vector<std::byte> words;
  if (claims) {
    words.resize(tutti::wire::detail::claim_bytes + tutti::wire::detail::proof_bytes);
    const auto body = std::span{words}.first<tutti::wire::detail::claim_body_bytes>();
    tutti::wire::detail::encode_claim_body(body, tutti::wire::proof::hmac, {}, {});
  }
  flood f{count, tutti::os::resolve(from, 0).front(),
          tutti::os::resolve(address, static_cast<std::uint16_t>(port)).front(), std::move(words)};
  f.run();
  std::printf("opened %lu\n", f.opened());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "join") return join();
  if (words.size() == 6 && words[0] == "hold")
    return hold(std::stoul(words[1]), words[2], words[3], std::stoi(words[4]), words[5] == "claims");
  std::fprintf(stderr, "usage: bench-flood join | bench-flood hold COUNT FROM ADDRESS PORT silent|claims\n");
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench-flood: %s\n", e.what());
  return 1;
}
