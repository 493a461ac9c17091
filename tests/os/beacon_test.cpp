#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <support/forked_child.hpp>
#include <thread>
#include <tutti/core/deadline.hpp>
#include <tutti/os/beacon.hpp>
#include <tutti/os/shm_segment.hpp>
#include <vector>

using namespace std::chrono_literals;
using namespace tutti::os;
using tutti_test::forked_child;

namespace {

std::shared_ptr<beacon_word> fresh_word() {
  const auto s = shm_segment::create(page_bytes());
  auto page = std::make_shared<shm_mapping>(s.map());
  auto* word = reinterpret_cast<beacon_word*>(page->data());
  return {std::move(page), word};
}

std::uint64_t start_of(::pid_t pid) { return process_start_time(pid).value_or(0); }

liveness await(beacon_word& w, ::pid_t pid, std::uint64_t start, liveness wanted) {
  const auto until = tutti::after(20s);
  liveness l{};
  while ((l = probe(w, pid, start)) != wanted && tutti::clock::now() < until) std::this_thread::sleep_for(50us);
  return l;
}

bool reach(const beacon_word& w, beacon_word::phase wanted) {
  const auto until = tutti::after(20s);
  while (w.state.load() != wanted && tutti::clock::now() < until) std::this_thread::sleep_for(50us);
  return w.state.load() == wanted;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

}  // namespace

TEST_CASE("beacon: before anybody holds it, the process decides") {
  const auto word = fresh_word();
  CHECK(probe(*word, ::getpid(), start_of(::getpid())) == liveness::alive);
  CHECK(probe(*word, ::getpid(), start_of(::getpid()) + 1) == liveness::dead);
}

TEST_CASE("beacon: SIGKILL is death, in each of 100 trials") {
  for (int trial = 0; trial < 100; ++trial) {
    const auto word = fresh_word();
    forked_child child{[&]() -> int {
      const beacon_owner owner{word};
      sleep_for_ever();
    }};
    const auto pid = child.pid();
    const auto start = start_of(pid);
    REQUIRE(reach(*word, beacon_word::phase::held));
    REQUIRE(probe(*word, pid, start) == liveness::alive);
    child.signal(SIGKILL);
    REQUIRE(await(*word, pid, start, liveness::dead) == liveness::dead);
    child.wait();
    REQUIRE(probe(*word, pid, start) == liveness::dead);
  }
}

TEST_CASE("beacon: death is seen while the dead process still waits to be reaped by its parent, by several probers") {
  const auto word = fresh_word();
  forked_child owner{[&]() -> int {
    const beacon_owner b{word};
    sleep_for_ever();
  }};
  REQUIRE(reach(*word, beacon_word::phase::held));
  const auto pid = owner.pid();
  const auto start = start_of(pid);
  const auto look = [&] { return await(*word, pid, start, liveness::dead) == liveness::dead ? 0 : 1; };
  forked_child a{look}, b{look}, c{look};
  owner.signal(SIGKILL);
  CHECK(a.wait() == 0);
  CHECK(b.wait() == 0);
  CHECK(c.wait() == 0);
}

TEST_CASE("beacon: a prober that is killed does not look like the owner's death") {
  const auto word = fresh_word();
  const beacon_owner owner{word};
  const auto start = start_of(::getpid());
  const auto self = ::getpid();
  for (int trial = 0; trial < 20; ++trial) {
    forked_child prober{[&]() -> int {
      for (;;) {
        if (probe(*word, self, start) != liveness::alive) return 1;
      }
    }};
    std::this_thread::sleep_for(500us);
    prober.signal(SIGKILL);
    CHECK(prober.wait() == -SIGKILL);
    CHECK(probe(*word, self, start) == liveness::alive);
  }
}

TEST_CASE("beacon: an orderly release is no death, in each of 100 trials") {
  for (int trial = 0; trial < 100; ++trial) {
    const auto word = fresh_word();
    forked_child child{[&] {
      {
        const beacon_owner owner{word};
      }
      return 0;
    }};
    const auto pid = child.pid();
    const auto start = start_of(pid);
    liveness l{};
    while ((l = probe(*word, pid, start)) == liveness::alive) std::this_thread::yield();
    REQUIRE(l == liveness::left);
    child.wait();
    REQUIRE(probe(*word, pid, start) == liveness::left);
  }
}

TEST_CASE("beacon: ending the process without release is death, whatever the exit code") {
  const auto word = fresh_word();
  forked_child child{[&] {
    const beacon_owner owner{word};
    ::_exit(0);
    return 0;
  }};
  const auto pid = child.pid();
  CHECK(child.wait() == 0);
  CHECK(probe(*word, pid, 1) == liveness::dead);
}

TEST_CASE("beacon: when the thread that holds it ends, the process lives on in the eyes of the others") {
  const auto self = ::getpid();
  const auto start = start_of(self);
  for (int trial = 0; trial < 100; ++trial) {
    const auto word = fresh_word();
    std::optional<beacon_owner> owner;
    std::thread{[&] { owner.emplace(word); }}.join();
    REQUIRE(word->state.load() == beacon_word::phase::watch_process);
    REQUIRE(probe(*word, self, start) == liveness::alive);
    owner.reset();
    REQUIRE(probe(*word, self, start) == liveness::left);
  }
}

TEST_CASE("beacon: after its thread ended, the end of the process is still seen") {
  const auto word = fresh_word();
  word->state.store(beacon_word::phase::watch_process);
  forked_child child{[]() -> int { sleep_for_ever(); }};
  const auto pid = child.pid();
  const auto start = start_of(pid);
  CHECK(probe(*word, pid, start) == liveness::alive);
  child.signal(SIGKILL);
  CHECK(await(*word, pid, start, liveness::dead) == liveness::dead);
}

TEST_CASE("beacon: release from another thread, while probed and while the holding thread ends") {
  const auto self = ::getpid();
  const auto start = start_of(self);
  for (int trial = 0; trial < 100; ++trial) {
    const auto word = fresh_word();
    std::optional<beacon_owner> owner;
    std::atomic<int> step{0};
    std::atomic<bool> died{false};
    std::thread holder{[&] {
      owner.emplace(word);
      step.store(1);
      while (step.load() < 2) std::this_thread::yield();
    }};
    while (step.load() < 1) std::this_thread::yield();
    std::thread prober{[&] {
      liveness l{};
      while ((l = probe(*word, self, start)) == liveness::alive) {
      }
      if (l == liveness::dead) died.store(true);
    }};
    step.store(2);
    owner.reset();
    holder.join();
    prober.join();
    REQUIRE_FALSE(died.load());
    REQUIRE(probe(*word, self, start) == liveness::left);
  }
}

TEST_CASE("beacon: the page stays mapped until the holding thread has let go of the mutex") {
  auto word = fresh_word();
  const std::weak_ptr<beacon_word> page = word;
  std::optional<beacon_owner> owner;
  std::atomic<int> step{0};
  std::thread holder{[&] {
    owner.emplace(word);
    step.store(1);
    while (step.load() < 2) std::this_thread::yield();
  }};
  while (step.load() < 1) std::this_thread::yield();
  owner.reset();
  word.reset();
  CHECK_FALSE(page.expired());
  step.store(2);
  holder.join();
  CHECK(page.expired());
}

TEST_CASE("beacon: a child made by fork() has no part in its parent's beacon") {
  const auto word = fresh_word();
  std::optional<beacon_owner> owner{word};
  forked_child child{[&] {
    owner.reset();
    return word->state.load() == beacon_word::phase::held ? 0 : 1;
  }};
  CHECK(child.wait() == 0);
  const auto start = start_of(::getpid());
  CHECK(probe(*word, ::getpid(), start) == liveness::alive);
  forked_child prober{[&, parent = ::getpid()] { return probe(*word, parent, start) == liveness::alive ? 0 : 1; }};
  CHECK(prober.wait() == 0);
  owner.reset();
  CHECK(probe(*word, ::getpid(), start) == liveness::left);
}

TEST_CASE("beacon: one thread may hold many, and give them back in any order") {
  std::vector<std::shared_ptr<beacon_word>> words;
  std::vector<beacon_owner> owners;
  for (int i = 0; i < 8; ++i) {
    words.push_back(fresh_word());
    owners.emplace_back(words.back());
  }
  for (const std::size_t i : {3U, 0U, 7U, 1U}) owners[i].release();
  owners.clear();
  for (const auto& w : words) {
    CHECK(probe(*w, ::getpid(), start_of(::getpid())) == liveness::left);
  }
}
