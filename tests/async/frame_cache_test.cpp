#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/frame_cache.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>

#include <async/allocations.hpp>
#include <async/stage.hpp>

namespace {

using tutti::task;
using tutti::detail::frame_cache;

TEST_CASE("frame_cache: gives back what it was given, for any size") {
  for (const std::size_t bytes : std::vector<std::size_t>{1, 127, 128, 129, 1000, 4096, 4097, 16384, 16385, 100000}) {
    std::set<void*> some;
    for (int i = 0; i < 100; ++i) {
      void* p = frame_cache::allocate(bytes);
      std::memset(p, 0x5a, bytes);
      some.insert(p);
    }
    CHECK(some.size() == 100);
    for (void* p : some) frame_cache::deallocate(p, bytes);
  }
  void* a = frame_cache::allocate(300);
  frame_cache::deallocate(a, 300);
  const long before = allocations::count.load();
  void* b = frame_cache::allocate(290);
  CHECK(allocations::count.load() == before);
  frame_cache::deallocate(b, 290);
}

TEST_CASE("frame_cache: a steady loop of tasks and operations allocates nothing") {
  tutti::engine e;
  stage::owner o{e};
  const auto leaf = [](stage::owner& from) -> task<int> {
    co_await tutti::op{from.finished()};
    co_return 1;
  };
  const auto loop = [](auto make, stage::owner& from, long& during) -> task<int> {
    int n = 0;
    long before = 0;
    for (int i = 0; i < 1100; ++i) {
      if (i == 100) before = allocations::count.load();
      n += co_await make(from);
      const auto [a, b] = co_await tutti::when_all(make(from), make(from));
      n += a + b;
    }
    during = allocations::count.load() - before;
    co_return n;
  };
  long during = -1;
  CHECK(tutti::sync_wait(e, loop(leaf, o, during)) == 3300);
  CHECK(during == 0);
}

TEST_CASE("frame_cache: frames may end on another thread, and with their thread") {
  const auto nothing = []() -> task<> { co_return; };
  std::vector<task<>> made;
  for (int i = 0; i < 200; ++i) made.push_back(nothing());
  std::thread{[&] { made.clear(); }}.join();

  // This object is older than the thread's cache, so it ends after it.
  struct holder {
    std::optional<task<>> kept;
    task<> (*make)();
    ~holder() {
      kept.reset();
      for (int i = 0; i < 10; ++i) {
        auto a = make();
        auto b = make();
      }
    }
  };
  std::thread{[&] {
    static thread_local holder last{{}, nothing};
    last.kept.reset();
    last.kept.emplace(nothing());
    std::vector<task<>> some;
    for (int i = 0; i < 5; ++i) some.push_back(nothing());
  }}.join();
}

}  // namespace
