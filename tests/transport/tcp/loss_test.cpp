#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/descriptor_limit.hpp"
#include "support/grid.hpp"
#include "transport/tcp_world.hpp"

// Who is named when a rank is lost, leaves, stops or has run out of something.

namespace {

using namespace tcp_world;

tutti::routine recv_any(tutti::tcp_transport& t, std::uint64_t tag, std::span<std::byte> in) {
  co_await t.recv_any({}, tag, in);
}

TEST_CASE("a rank that is killed at any moment is named by every survivor") {
  std::mt19937 random{std::random_device{}()};
  for (int run = 0; run < (tutti_test::slow ? 25 : 100); ++run) {
    plan p{4};
    auto ranks = in_processes(p, [](driver& d) { return code_of(work(d, 1 << 30)); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const int victim = static_cast<int>(random() % 4);
    ranks[static_cast<std::size_t>(victim)].signal(SIGKILL);
    for (int r = 0; r < 4; ++r) {
      CAPTURE(run);
      CAPTURE(victim);
      CAPTURE(r);
      const int end = ranks[static_cast<std::size_t>(r)].wait();
      if (r != victim) CHECK(to_string(end) == to_string(code_of(errc::peer_lost, victim)));
    }
  }
}

TEST_CASE("one of several connections that breaks under way ends the world, on both sides") {
  for (int victim = 0; victim < 8; ++victim) {
    plan p{2};
    p.options.connections = 4;
    auto ranks = in_processes(p, [victim](driver& d) {
      if (const status s = work(d, 20); !s.ok()) return code_of(s);
      for (int fd = 3, n = 0; d.transport().rank() == 0 && fd < 1000; ++fd) {
        sockaddr_storage other{};
        socklen_t bytes = sizeof other;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &bytes) != 0 || other.ss_family != AF_INET) continue;
        if (n++ == victim) ::shutdown(fd, SHUT_RDWR);
      }
      return code_of(work(d, 1 << 30));
    });
    for (auto& r : ranks) {
      const std::string end = to_string(r.wait());
      CAPTURE(victim);
      CHECK((end == to_string(code_of(errc::peer_lost, 0)) || end == to_string(code_of(errc::peer_lost, 1))));
    }
  }
}

TEST_CASE("two ranks that are killed: the last ones name one of them") {
  for (int run = 0; run < 10; ++run) {
    plan p{4};
    auto ranks = in_processes(p, [](driver& d) { return code_of(work(d, 1 << 30)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(run));
    for (const std::size_t r : {0U, 2U}) ranks[r].signal(SIGKILL);
    for (const std::size_t r : {1U, 3U}) {
      const std::string end = to_string(ranks[r].wait());
      CHECK((end == to_string(code_of(errc::peer_lost, 0)) || end == to_string(code_of(errc::peer_lost, 2))));
    }
  }
}

TEST_CASE("when the time is up, the rank that was stopped is to blame, not one that waits for it") {
  plan p{5};
  const shared_page<std::atomic<int>> started;
  auto ranks = in_processes(p, [&](driver& d) {
    auto& t = d.transport();
    if (const status s = work(d, 5); !s.ok()) return code_of(s);
    ++*started;
    if (t.rank() == 3) std::this_thread::sleep_for(1h);
    // Everybody waits for its predecessor only.
    std::byte in{};
    const auto f = d.recv((t.rank() + 4) % 5, 99, {&in, 1});
    const auto expires = tutti::after(1s);
    d.until([&] { return f->done() || tutti::clock::now() > expires; });
    if (!f->done()) {
      const auto guard = d.lock();
      t.abort({errc::timed_out, 0, t.waiting_for(f->work()), 0});
    }
    return code_of(d.wait(*f));
  });
  while (*started != 5) std::this_thread::sleep_for(1ms);
  ranks[3].signal(SIGSTOP);
  for (const std::size_t r : {0U, 1U, 2U, 4U})
    CHECK(to_string(ranks[r].wait()) == to_string(code_of(errc::timed_out, 3)));
}

TEST_CASE("a rank that leaves early is named, by those who wait for it and by those who wait for them") {
  plan p{4};
  auto ranks = in_processes(p, [](driver& d) { return code_of(work(d, d.transport().rank() == 1 ? 7 : 1 << 30)); });
  CHECK(ranks[1].wait() == 0);
  for (const std::size_t r : {0U, 2U, 3U}) CHECK(to_string(ranks[r].wait()) == to_string(code_of(errc::peer_left, 1)));
}

TEST_CASE("a rank that left in order has left for those, too, that it had never met") {
  plan p{4};
  p.options.connections = 2;
  p.options.goodbye = 20s;  // all others look, at last
  std::atomic<bool> gone{false};
  std::atomic<int> received{0};
  std::vector<std::thread> ranks;
  ranks.emplace_back([&] {
    p.transport(3).reset();
    gone = true;
  });
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      const auto t = p.transport(r);
      driver d{*t};
      d.until([&] { return gone.load(); });
      std::byte in{}, out{std::byte{7}};
      if (r == 1) {  // any of those who are still there
        CHECK(d.wait(*d.start(recv_any(*t, 5, {&in, 1}))).ok());
        CHECK(in == out);
        received = 1;
      } else if (r == 2) {
        CHECK(d.wait(*d.send(1, 5, {&out, 1})).ok());
      }
      d.until([&] { return received.load() != 0; });
      if (r == 0) CHECK(d.wait(*d.recv(3, 6, {&in, 1})) == status{errc::peer_left, 0, 3, 0});
    });
  for (std::thread& t : ranks) t.join();
}

TEST_CASE("a cause reaches everybody as it is") {
  plan p{4};
  auto ranks = in_processes(p, [](driver& d) {
    auto& t = d.transport();
    if (const status s = work(d, 5); !s.ok()) return code_of(s);
    if (t.rank() != 2) return code_of(work(d, 1 << 30));
    const auto guard = d.lock();
    t.abort({errc::aborted, 0, -1, 0});
    return 0;
  });
  CHECK(ranks[2].wait() == 0);
  for (const std::size_t r : {0U, 1U, 3U}) CHECK(to_string(ranks[r].wait()) == to_string(code_of(errc::aborted, -1)));
}

TEST_CASE("a cause reaches a rank that connects after the failure, whichever of the two it is") {
  for (const int failed : {0, 1}) {
    plan p{2};
    p.options.goodbye = 20s;
    std::atomic<bool> over{false};
    const auto said = in_threads(p, [&](driver& d) -> std::string {
      if (d.transport().rank() == failed) {
        const auto guard = d.lock();
        d.transport().abort({errc::aborted, 0, -1, 0});
        over = true;
        return "";  // and it leaves
      }
      while (!over) std::this_thread::sleep_for(1ms);
      std::byte in{};
      return to_string(code_of(d.wait(*d.recv(failed, 1, {&in, 1}))));
    });
    CHECK(said[static_cast<std::size_t>(1 - failed)] == to_string(code_of(errc::aborted, -1)));
  }
}

TEST_CASE("a rank that has no descriptor left for a connection is named itself") {
  plan p{3};
  shared_page<std::atomic<bool>> full;
  auto ranks = in_processes(p, [&](driver& d) {
    auto& t = d.transport();
    std::byte token{};
    const int other = t.rank() == 0 ? 1 : 0;
    if (t.rank() != 2 && !d.run(drive::send(t, other, 0, {&token, 1})).ok()) return 1;
    if (t.rank() != 2 && !d.wait(*d.recv(other, 0, {&token, 1})).ok()) return 1;
    if (t.rank() == 1) {
      const tutti_test::descriptor_limit tight{::fcntl(0, F_DUPFD, 0)};
      *full = true;
      const status s = d.run(drive::send(t, 2, 1, {&token, 1}));
      const auto guard = d.lock();
      t.abort(s);
      return code_of(s);
    }
    while (t.rank() == 2 && !*full) std::this_thread::sleep_for(std::chrono::milliseconds{1});  // it connects to nobody
    return code_of(d.wait(*d.recv(1, 1, {&token, 1})));
  });
  for (const std::size_t r : {0U, 1U})
    CHECK(to_string(ranks[r].wait()) == to_string(code_of(errc::out_of_resources, 1)));
  ranks[2].wait();  // it has never met the others: to it one of them is lost
}

}  // namespace
