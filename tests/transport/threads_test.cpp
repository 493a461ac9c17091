#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/threads.hpp>
#include <vector>

#include "transport/drive.hpp"

namespace {

using drive::rank_driver;
using tutti::errc;
using tutti::status;
using tutti::threads_transport;

static_assert(tutti::mapped_transport<threads_transport>);

/// Runs `body` on n threads, each with a rank. What it returns is collected: empty when all was well.
std::vector<std::string> on_ranks(int n, const std::function<std::string(rank_driver<threads_transport>&)>& body) {
  const auto hub = std::make_shared<tutti::threads_hub>(n);
  std::vector<std::string> outcome(static_cast<std::size_t>(n), "not run");
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < n; ++r)
      threads.emplace_back([&, r] {
        threads_transport t{hub, r};
        rank_driver<threads_transport> driver{t, 20};
        outcome[static_cast<std::size_t>(r)] = body(driver);
      });
  }
  return outcome;
}

std::string expect(bool good, const std::string& what) { return good ? std::string{} : what; }

}  // namespace

TEST_CASE("a world needs a rank") { CHECK_THROWS_AS(tutti::threads_hub{0}, tutti::usage_error); }

TEST_CASE("all sizes travel between all threads, in any order") {
  for (const int n : {1, 2, 3}) {
    const auto outcome =
        on_ranks(n, [](auto& driver) { return drive::all_to_all(driver, drive::sizes_around_the_eager_limit()); });
    for (const std::string& s : outcome) CHECK(s == "");
  }
}

TEST_CASE("many rounds of a barrier keep the threads together") {
  std::atomic<int> inside{0};
  const auto outcome = on_ranks(4, [&](auto& driver) -> std::string {
    for (std::uint64_t round = 0; round < 300; ++round) {
      inside.fetch_add(1);
      if (!driver.run(drive::barrier(driver.transport(), round)).ok()) return "a barrier failed";
      if (inside.load() < static_cast<int>(round + 1) * 4) return "somebody was not there";
    }
    return {};
  });
  for (const std::string& s : outcome) CHECK(s == "");
}

TEST_CASE("the first cause of an abort is everybody's") {
  const auto outcome = on_ranks(3, [](auto& driver) -> std::string {
    threads_transport& t = driver.transport();
    if (t.rank() == 1) {
      const auto guard = driver.lock();
      t.abort({errc::timed_out, 0, 2, 0});
    }
    std::byte in{};
    const status s = driver.run(drive::recv(t, (t.rank() + 1) % 3, 7, {&in, 1}));
    if (t.rank() != 1) {
      const auto guard = driver.lock();
      t.abort({errc::aborted, 0, 0, 0});
    }
    return expect(s.code == errc::timed_out && s.peer == 2 && t.failure().code == errc::timed_out, "another cause");
  });
  for (const std::string& s : outcome) CHECK(s == "");
}

TEST_CASE("a thread that leaves is missed only by those who still need it") {
  const auto outcome = on_ranks(3, [](auto& driver) -> std::string {
    threads_transport& t = driver.transport();
    std::byte token{};
    if (t.rank() == 0) return expect(driver.run(drive::send(t, 1, 7, {&token, 1})).ok(), "could not send");
    if (t.rank() == 2) return {};  // leaves without a word
    if (!driver.run(drive::recv(t, 0, 7, {&token, 1})).ok()) return "what was sent before leaving is lost";
    const status s = driver.run(drive::recv(t, 0, 8, {&token, 1}));
    return expect(s.code == errc::peer_left && s.peer == 0, "somebody else was missed");
  });
  for (const std::string& s : outcome) CHECK(s == "");
}

TEST_CASE("a message of a wrong length is a mismatch even when its sender has left") {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  threads_transport here{hub, 0};
  auto there = std::make_unique<threads_transport>(hub, 1);
  drive::owner owner;
  std::vector<std::byte> ten(10), eleven(11);
  const drive::flight r{owner, drive::recv(here, 1, 7, ten)}, s{owner, drive::send(*there, 0, 7, eleven)};
  there.reset();
  here.tick(tutti::clock::now());
  here.poll();
  here.poll();
  CHECK(r.code() == errc::mismatch);
  CHECK(s.code() == errc::ok);
}

TEST_CASE("memory is zeroed, aligned, everybody's, and named") {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  threads_transport a{hub, 0}, b{hub, 1};
  std::byte* p = a.allocate(100000);
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 4096 == 0);
  CHECK(std::all_of(p, p + 100000, [](std::byte x) { return x == std::byte{}; }));
  const auto where = a.locate(p + 5, 10);
  REQUIRE(where);
  CHECK(b.resolve(0, *where) == p + 5);
  a.deallocate(p);
  a.deallocate(a.allocate(0));
  CHECK((a.maps(0) && a.maps(1)));
}

TEST_CASE("a condition in memory wakes a rank that sleeps") {
  std::atomic<bool> flag{false};
  struct raised final : tutti::condition {
    explicit raised(std::atomic<bool>& f) : flag(f) {}
    bool holds() noexcept override { return flag.load(std::memory_order_acquire); }
    int waiting_for() const noexcept override { return 0; }
    std::atomic<bool>& flag;
  };
  const auto outcome = on_ranks(2, [&](auto& driver) -> std::string {
    threads_transport& t = driver.transport();
    if (t.rank() == 0) {
      flag.store(true, std::memory_order_release);
      t.ring(1);
      return {};
    }
    raised c{flag};
    return expect(driver.run(drive::await_condition(t, c)).ok(), "the condition failed");
  });
  for (const std::string& s : outcome) CHECK(s == "");
}

TEST_CASE("a transport tells who is behind and where everybody is") {
  const auto hub = std::make_shared<tutti::threads_hub>(3);
  threads_transport a{hub, 0}, b{hub, 1}, c{hub, 2};
  for (auto* t : {&a, &b, &c}) t->note_issue(40);
  b.note_issue(39);
  a.note_issue(41);
  c.note_issue(38);
  CHECK(a.waiting_for(nullptr, 39) == 2);
  CHECK(a.waiting_for(nullptr, 38) == -1);  // what it has begun since does not matter
  c.note_issue(40);
  CHECK(a.waiting_for(nullptr, 40) == 1);
  CHECK(a.waiting_for(nullptr) == -1);
  CHECK(a.describe(1) == "rank 1 (a thread of this process), last seen at #39");
  b.note_issue(40);
  CHECK(a.waiting_for(nullptr, 40) == -1);
  CHECK(a.ranks_per_core() > 0);
}
