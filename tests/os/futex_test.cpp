#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <support/forked_child.hpp>
#include <thread>
#include <tutti/os/futex.hpp>

using namespace std::chrono_literals;
using tutti::os::futex_wait;
using tutti::os::futex_wake;

TEST_CASE("futex_wait returns at once when the word has another value") {
  const std::atomic<std::uint32_t> word{7};
  CHECK(futex_wait(word, 6, 10s));
}

TEST_CASE("futex_wait tells that its limit passed, and takes limits of zero and below") {
  const std::atomic<std::uint32_t> word{7};
  CHECK_FALSE(futex_wait(word, 7, 1ms));
  CHECK_FALSE(futex_wait(word, 7, 0ns));
  CHECK_FALSE(futex_wait(word, 7, -5s));
}

TEST_CASE("futex_wake wakes a thread") {
  std::atomic<std::uint32_t> word{0};
  bool in_time = true;
  std::thread sleeper{[&] {
    while (word.load() == 0 && in_time) in_time = futex_wait(word, 0, 20s);
  }};
  word.store(1);
  futex_wake(word);
  sleeper.join();
  CHECK(in_time);
}

TEST_CASE("futex_wake wakes another process") {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* words = new (page) std::atomic<std::uint32_t>[2]{};
  {
    tutti_test::forked_child child{[&] {
      words[1].store(1);
      while (words[0].load() == 0) {
        if (!futex_wait(words[0], 0, 20s)) return 1;
      }
      return 0;
    }};
    while (words[1].load() == 0) std::this_thread::yield();
    // The child may be about to sleep: only a wake-up that found it asleep tests anything.
    int woken = 0;
    for (int i = 0; i < 100000 && woken == 0; ++i) {
      woken = futex_wake(words[0], 1);
      std::this_thread::yield();
    }
    CHECK(woken == 1);
    words[0].store(1);
    futex_wake(words[0]);
    CHECK(child.wait() == 0);
  }
  ::munmap(page, 4096);
}
