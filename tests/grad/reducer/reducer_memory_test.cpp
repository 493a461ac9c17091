#include <doctest/doctest.h>

#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/transport/threads.hpp>
#include <utility>
#include <vector>

// The thread sanitizer's runtime brings operators that cannot be replaced one by one: nothing is counted there.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUTTI_TEST_COUNTS_NOTHING
#endif
#endif

namespace {
thread_local long allocations = 0;
}

#if !defined(TUTTI_TEST_COUNTS_NOTHING)
// Not inlined: g++ would take malloc and free for a mismatch with new and delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace {
using tutti::dtype;
using tutti::grad::reducer;
using world_t = tutti::communicator<tutti::threads>;
using shapes = std::vector<tutti::grad::parameter_shape>;

/// Nothing travels, so that only the reducer's own allocations are left.
struct idle_hook {
  template <class Comm, class T>
  std::suspend_never operator()(Comm&, tutti::grad::bucket_view<T>) const {
    return {};
  }
};

template <class Reducer>
long allocations_of_passes(world_t& world, Reducer& r) {
  const auto passes = [&] {
    for (int i = 0; i < 100; ++i) {
      auto pass = r.begin(i, i % 2 ? tutti::grad::contribution::mean : tutti::grad::contribution::sum);
      for (std::size_t p = 0; p < r.size(); ++p) pass.ready(p);
      auto moved = std::move(pass);
      tutti::sync_wait(world, moved.finish());
    }
  };
  passes();
  const long before = allocations;
  passes();
  return allocations - before;
}
}  // namespace

TEST_CASE("reducer: passes allocate nothing once the first has run") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
#if !defined(TUTTI_TEST_COUNTS_NOTHING)
  const long before = allocations;
  const auto probe = std::make_unique<int>(1);
  REQUIRE(allocations > before);
#endif
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    shapes list(30, {"a name that is too long to be stored without an allocation", 50, type});
    list.push_back({"other", 3, dtype::f64});
    for (const auto order : {tutti::grad::launch_order::planned, tutti::grad::launch_order::ready})
      for (const std::size_t bound : {std::size_t{0}, std::size_t{2}}) {
        reducer r{world, list, {.limits = {500, 1000}, .order = order, .in_flight = bound}};
        CHECK(r.layout().buckets.size() > 2);
        CHECK(allocations_of_passes(world, r) == 0);
      }
  }
}

TEST_CASE("reducer: nor do they where a hook travels in its own way") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  const shapes list(30, {"", 50, dtype::f32});
  for (const std::size_t bound : {std::size_t{0}, std::size_t{2}}) {
    reducer r{world, list, {.limits = {500, 1000}, .in_flight = bound}, idle_hook{}};
    CHECK(allocations_of_passes(world, r) == 0);
    reducer narrow{
        world, list, {.limits = {500, 1000}, .in_flight = bound}, tutti::grad::compress_hook<tutti::bfloat16>{}};
    CHECK(allocations_of_passes(world, narrow) == 0);
  }
}

TEST_CASE("reducer: holds the gradients once, with a line and a rounded page per bucket") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  const std::size_t count = 1 << 18;
  const shapes list(8, {"w", count, dtype::f32});
  for (const std::size_t cap : {std::size_t{1}, std::size_t{1} << 20, std::size_t{64} << 20}) {
    const reducer r{world, list, {{cap, cap}}};
    CHECK(r.bytes() >= 8 * count * 4);
    CHECK(r.bytes() <= 8 * count * 4 + r.layout().buckets.size() * (64 + 4095));
  }
}
