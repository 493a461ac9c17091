#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/rounds.hpp"

namespace {
using tutti::dtype;
using tutti::grad::bucket_view;
using tutti::grad::reducer;
using tutti::grad::reduction_hook;
using tutti::grad::sum_hook;
using world_t = tutti::communicator<tutti::threads>;
using shapes = std::vector<tutti::grad::parameter_shape>;

/// Remembers which buckets it was given.
struct counting_hook {
  std::vector<std::size_t>* seen;
  std::vector<std::size_t>* bytes = nullptr;

  template <class Comm, class T>
  auto operator()(Comm& world, bucket_view<T> b) const {
    seen->push_back(b.index);
    if (bytes) bytes->push_back(b.elements.size_bytes());
    return world.all_reduce(b.elements);
  }
};

/// Does all of its work in finish().
struct lazy_hook {
  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) const {
    co_await world.all_reduce(b.elements);
  }
};

/// Several collectives per bucket, whose order only finish() makes equal: agrees on the largest magnitude, then sums.
struct two_step_hook {
  std::vector<double>* largest;

  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) const {
    double mine = 0;
    for (const T x : b.elements.first(b.elements.size() - 64 / sizeof(T)))
      mine = std::max(mine, std::abs(static_cast<double>(x)));
    largest->push_back(co_await world.all_reduce(mine, tutti::max));
    co_await world.all_reduce(b.elements);
  }
};

/// Travels at once; only what comes after is a task.
struct eager_hook {
  std::vector<std::size_t>* after;

  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) const {
    return then(world.all_reduce(b.elements), b.index);
  }
  tutti::task<> then(tutti::op sum, std::size_t index) const {
    co_await std::move(sum);
    after->push_back(index);
  }
};

struct only_float {
  tutti::op operator()(world_t& world, bucket_view<float> b) const { return world.all_reduce(b.elements); }
};
template <class Missing>
struct all_but {
  template <class T>
    requires(!std::same_as<T, Missing>)
  tutti::op operator()(world_t& world, bucket_view<T> b) const {
    return world.all_reduce(b.elements);
  }
};
struct no_flight {
  void operator()(world_t&, auto) const {}
};
struct number_flight {
  int operator()(world_t&, auto) const { return 1; }
};
struct many_flights {
  template <class T>
  auto operator()(world_t& world, bucket_view<T> b) const {
    if constexpr (sizeof(T) == 8)
      return lazy_hook{}(world, b);
    else
      return world.all_reduce(b.elements);
  }
};
/// Spoils the weights.
struct infinite {
  template <class T>
  std::suspend_never operator()(world_t&, bucket_view<T> b) const {
    for (T& x : b.elements) x = T(std::numeric_limits<float>::infinity());
    return {};
  }
};
struct never {
  std::suspend_never operator()(world_t&, auto) const { return {}; }
};
[[maybe_unused]] const auto lambda = [](auto& world, auto b) { return world.all_reduce(b.elements); };

static_assert(reduction_hook<sum_hook, world_t> && reduction_hook<counting_hook, world_t>);
static_assert(reduction_hook<lazy_hook, world_t> && reduction_hook<two_step_hook, world_t>);
static_assert(reduction_hook<never, world_t> && reduction_hook<decltype(lambda), world_t>);
static_assert(!reduction_hook<only_float, world_t> && !reduction_hook<no_flight, world_t>);
static_assert(!reduction_hook<number_flight, world_t> && !reduction_hook<many_flights, world_t>);
static_assert(reduction_hook<all_but<int>, world_t>);
static_assert(!reduction_hook<all_but<float>, world_t> && !reduction_hook<all_but<double>, world_t>);
static_assert(!reduction_hook<all_but<tutti::float16>, world_t> && !reduction_hook<all_but<tutti::bfloat16>, world_t>);
static_assert(!reduction_hook<int, world_t>);

/// The round's result on every rank, with a hook made for each rank.
template <class Make>
std::vector<rounds::image> results(const rounds::round& r, Make make_hook) {
  std::vector<rounds::image> all(static_cast<std::size_t>(r.size));
  tutti::run_threads(r.size, [&](world_t& world) {
    reducer reducer{world, r.shapes, r.options, make_hook(static_cast<std::size_t>(world.rank()))};
    all[static_cast<std::size_t>(world.rank())] = rounds::run(r, world, reducer);
  });
  return all;
}

std::size_t buckets_of(const rounds::round& r) {
  return tutti::grad::make_plan(r.shapes, r.options.limits).buckets.size();
}
}  // namespace

TEST_CASE("hook: buckets are launched once, in the plan's order on all ranks, whatever the order of marks") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 30; ++i) {
    const auto r = rounds::random_round(random, 1 + i % 4);
    std::vector<std::vector<std::size_t>> seen(4);
    const auto all = results(r, [&](std::size_t rank) { return counting_hook{&seen[rank]}; });
    REQUIRE(rounds::complaint(r, all[0]) == "");
    std::vector<std::size_t> expected(buckets_of(r));
    for (std::size_t b = 0; b < expected.size(); ++b) expected[b] = b;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(r.size); ++rank) REQUIRE(seen[rank] == expected);
  }
}

TEST_CASE("hook: a bucket is launched with its last mark, not before those in front of it") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes list{{"a", 16, dtype::f32}, {"b", 3, dtype::f32}, {"c", 16, dtype::f32}, {"d", 20, dtype::f64}};
    std::vector<std::size_t> seen, bytes;
    reducer reducer{world, list, {{96, 96}}, counting_hook{&seen, &bytes}};  // {d}, {c, b}, {a}
    using order = std::vector<std::size_t>;
    const auto expect = [&](const order& buckets) {
      if (seen != buckets) throw std::runtime_error("launched " + std::to_string(seen.size()));
    };
    auto pass = reducer.begin();
    pass.ready(0);
    expect({});
    pass.ready(3);
    expect({0});
    pass.ready(2);
    expect({0});
    pass.ready(1);
    expect({0, 1, 2});
    if (bytes != order{192 + 64, 128 + 64, 64 + 64}) throw std::runtime_error("sizes");
    tutti::sync_wait(world, pass.finish());
    expect({0, 1, 2});
  });
}

TEST_CASE("hook: the order of issue does not depend on when messages arrive, nor with float16") {
  // Between marks everybody issues collectives of their own; were a bucket ever launched by another mark than its last,
  // they would meet others than their likes.
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    std::vector<std::vector<std::size_t>> seen(3);
    tutti::run_threads(3, [&](world_t& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      const shapes list{{"a", 8, type}, {"b", 8, dtype::bf16}, {"c", 8, type}, {"d", 8, type}};
      reducer reducer{world, list, {{1, 1}}, counting_hook{&seen[rank]}};
      for (int i = 0; i < 20; ++i) {
        auto pass = reducer.begin();
        for (std::size_t p = 4; p-- > 0;) {
          if (i % 3 == world.rank()) std::this_thread::yield();
          pass.ready(p);
          if (world.all_reduce(static_cast<std::uint64_t>(p)).wait() != 3 * p) throw std::runtime_error("sum");
        }
        tutti::sync_wait(world, pass.finish());
      }
    });
    for (const auto& order : seen) {
      CHECK(order.size() == 80);
      CHECK(order == seen[0]);
    }
  }
}

TEST_CASE("hook: tasks, lazy or eager, of one collective or two, give the bits of one all_reduce") {
  std::mt19937_64 random(12);
  for (int i = 0; i < 30; ++i) {
    CAPTURE(i);
    const auto r = rounds::random_round(random, 1 + i % 4);
    const auto size = static_cast<std::size_t>(r.size);
    const auto expected = results(r, [](std::size_t) { return lambda; });
    REQUIRE(rounds::complaint(r, expected[0]) == "");
    REQUIRE(results(r, [](std::size_t) { return lazy_hook{}; }) == expected);
    std::vector<std::vector<double>> largest(size);
    REQUIRE(results(r, [&](std::size_t rank) { return two_step_hook{&largest[rank]}; }) == expected);
    std::vector<std::vector<std::size_t>> after(size);
    REQUIRE(results(r, [&](std::size_t rank) { return eager_hook{&after[rank]}; }) == expected);
    for (std::size_t rank = 0; rank < size; ++rank) {
      REQUIRE(largest[rank] == largest[0]);
      REQUIRE(largest[rank].size() == buckets_of(r));
      REQUIRE(after[rank].size() == buckets_of(r));
      REQUIRE(std::is_sorted(after[rank].begin(), after[rank].end()));
    }
  }
}

TEST_CASE("hook: any awaitable will do, and a lambda") {
  tutti::run_threads(1, [](world_t& world) {
    const shapes list{{"a", 2, dtype::f32}};
    reducer alone{world, list, {}, never{}};
    reducer same{world, list, {}, lambda};
    for (const auto r : {alone.gradient<float>(0), same.gradient<float>(0)}) r[1] = 7;
    auto first = alone.begin(3);
    auto second = same.begin(3);
    first.ready(0);
    second.ready(0);
    tutti::sync_wait(world, first.finish());
    tutti::sync_wait(world, second.finish());
    if (alone.gradient<float>(0)[1] != 7 || same.gradient<float>(0)[1] != 7) throw std::runtime_error("not the mean");
  });
}

TEST_CASE("hook: one that does not leave the tail alone spoils the pass, but does not hang it") {
  tutti::run_threads(1, [](world_t& world) {
    const shapes list{{"a", 2, dtype::f32}};
    reducer r{world, list, {}, infinite{}};
    auto pass = r.begin();
    pass.ready(0);
    (void)tutti::sync_wait(world, pass.finish());
    if (r.total_weight() < 2) throw std::runtime_error("not spoilt");
  });
}
