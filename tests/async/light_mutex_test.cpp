#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include <tutti/async/light_mutex.hpp>

namespace {

using tutti::light_mutex;
static_assert(!std::is_copy_constructible_v<light_mutex> && !std::is_move_constructible_v<light_mutex>);

/// Another thread, for as long as it lives: the mutex then works by locked instructions.
class company {
 public:
  company()
      : thread_([this] {
          while (!over_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }) {}
  ~company() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

void check_holding(light_mutex& m) {
  std::unique_lock first{m};
  CHECK_FALSE(m.try_lock());
  std::unique_lock second{m, std::try_to_lock};
  CHECK_FALSE(second.owns_lock());
  first.unlock();
  CHECK(second.try_lock());
  second.unlock();
  CHECK(m.try_lock());
  m.unlock();
}

TEST_CASE("light_mutex: who holds it keeps others out, and it is free again afterwards") {
  light_mutex m;
  check_holding(m);
  const company other;
  check_holding(m);
}

TEST_CASE("light_mutex: taken while the process has one thread, given back when it has two") {
  light_mutex m;
  m.lock();
  std::atomic<bool> inside{false};
  std::thread second{[&] {
    const std::scoped_lock guard{m};
    inside = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(inside);
  m.unlock();
  second.join();
  CHECK(inside);
  CHECK(m.try_lock());
  m.unlock();
}

TEST_CASE("light_mutex: threads that contend for it lose no step, and all of them get it in the end") {
  light_mutex m;
  long count = 0;  // not atomic: the mutex is what keeps it whole
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const std::scoped_lock guard{m};
        const long seen = count;
        if (i % 64 == 0) std::this_thread::yield();  // others find it held, and sleep
        count = seen + 1;
      }
    });
  for (auto& t : all) t.join();
  CHECK(count == 4 * 5000);
}

}  // namespace
