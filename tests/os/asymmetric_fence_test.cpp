#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include <tutti/os/asymmetric_fence.hpp>

// Two threads each store and then look at the other's store: with a fence on both sides, one of them sees the other.
TEST_CASE("a heavy fence stands for the fences of those who make light ones") {
  if (!tutti::os::accept_heavy_fences()) {
    MESSAGE("skipped: this kernel or sandbox has no membarrier");
    return;
  }
  constexpr int rounds = 20000;
  std::atomic<int> heavy{0}, light{0}, seen_by_heavy{0}, seen_by_light{0}, both_missed{0}, unfenced{0};
  std::atomic<int> round{0}, finished{0};
  std::jthread other([&] {
    for (int i = 1; i <= rounds; ++i) {
      while (round.load() < i) {
      }
      light.store(i, std::memory_order_relaxed);
      tutti::os::light_fence();
      seen_by_light.store(heavy.load(std::memory_order_relaxed) == i ? 1 : 0, std::memory_order_relaxed);
      finished.store(i);
    }
  });
  for (int i = 1; i <= rounds; ++i) {
    round.store(i);
    heavy.store(i, std::memory_order_relaxed);
    if (!tutti::os::heavy_fence()) unfenced.fetch_add(1);
    seen_by_heavy.store(light.load(std::memory_order_relaxed) == i ? 1 : 0, std::memory_order_relaxed);
    while (finished.load() < i) std::this_thread::yield();
    if (seen_by_heavy.load() == 0 && seen_by_light.load() == 0) both_missed.fetch_add(1);
  }
  CHECK(both_missed.load() == 0);
  CHECK(unfenced.load() == 0);
}
