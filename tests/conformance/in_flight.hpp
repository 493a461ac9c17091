#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// Operations of all kinds and algorithms at once, awaited in another order than they were issued.
template <class World>
void check_other_order(session<World>& s, std::size_t count, std::size_t stride) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  constexpr std::size_t rounds = 8;
  const ways possible = s.template algorithms<tutti::all_reduce_args>(
      {ring, automatic, recursive_doubling, direct, halving_doubling, hierarchical}, sizeof(double));
  std::vector<std::vector<double>> sums, blocks, copies;
  for (std::size_t i = 0; i < rounds; ++i) {
    sums.emplace_back(count, static_cast<double>(rank) + static_cast<double>(i));
    copies.emplace_back(count, rank == static_cast<int>(i) % size ? static_cast<double>(i) : -1.0);
    blocks.emplace_back(count * s.size(), static_cast<double>(rank));
  }
  std::vector<tutti::op> ops;
  for (std::size_t i = 0; i < rounds; ++i) {
    ops.push_back(
        s.world.all_reduce(sums[i], tutti::sum, {.via = possible.empty() ? automatic : possible[i % possible.size()]}));
    ops.push_back(s.world.broadcast(copies[i], static_cast<int>(i) % size));
    ops.push_back(
        s.world.all_gather(std::span{blocks[i]}.subspan(count * static_cast<std::size_t>(rank), count), blocks[i]));
    ops.push_back(s.world.barrier());
  }
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i * stride % ops.size()].wait();
  for (std::size_t i = 0; i < rounds; ++i) {
    const which c = s.name("all_reduce", count, "float64");
    const double wanted =
        static_cast<double>(size * (size - 1)) / 2 + static_cast<double>(size) * static_cast<double>(i);
    expect_equal(c, std::span{sums[i]}, [&](std::size_t) { return wanted; });
    expect_equal(s.name("broadcast", count, "float64"), std::span{copies[i]},
                 [&](std::size_t) { return static_cast<double>(i); });
    expect_equal(s.name("all_gather", count, "float64"), std::span{blocks[i]},
                 [&](std::size_t k) { return static_cast<double>(k / count); });
  }
}

/// A handle that is dropped has waited: the buffer is complete and free.
template <class World>
void check_dropped(session<World>& s, std::size_t count) {
  for (int round = 0; round < 4; ++round) {
    std::vector<int> v(count, 1);
    {
      auto dropped = s.world.all_reduce(v);
    }
    expect_equal(s.name("all_reduce", count, "int32"), std::span{v}, [&](std::size_t) { return s.world.size(); });
    v.assign(count, 0);
    auto replaced = s.world.all_reduce(v);
    replaced = s.world.barrier();
    replaced.wait();
  }
}

template <class World>
tutti::task<int> sum_of_ranks(World& world) {
  int sum = co_await world.all_reduce(world.rank());
  for (int i = 0; i < 10; ++i) {
    std::vector<int> v(static_cast<std::size_t>(i) * 100, i);
    co_await world.all_reduce(v);
    for (const int x : v)
      if (x != i * world.size()) co_return -1;
  }
  co_await world.barrier();
  co_return sum;
}

template <class World>
tutti::task<> check_coroutines(session<World>& s) {
  const int rank = s.world.rank(), size = s.world.size(), all = size * (size - 1) / 2;
  const which c = s.name("when_all");
  expect(co_await sum_of_ranks(s.world) == all, c, "an awaited task gave another sum");

  auto one = s.world.all_reduce(rank);
  auto two = s.world.broadcast(3.5 * (rank + 1), size - 1);
  auto three = s.world.barrier();
  const auto [sum, copy, nothing] =
      co_await tutti::when_all(std::tuple{std::move(one), std::move(two), std::move(three)});
  expect(sum == all && copy == 3.5 * size, c, "other values");
  (void)nothing;

  std::vector<std::vector<int>> data;
  for (int i = 0; i < 20; ++i) data.emplace_back(static_cast<std::size_t>(i) * 50, rank);
  std::vector<tutti::op> ops;
  for (auto& d : data) ops.push_back(s.world.all_reduce(d));
  co_await tutti::when_all(std::move(ops));
  for (auto& d : data) expect_equal(c, std::span{d}, [&](std::size_t) { return all; });

  auto first = sum_of_ranks(s.world), second = sum_of_ranks(s.world);  // take turns, alike on every rank or not
  const int a = co_await std::move(first), b = co_await std::move(second);
  expect(a == all && b == all, c, "tasks one after the other gave other sums");
}

template <class World>
void check_in_flight(session<World>& s) {
  for (const std::size_t count : s.counts({1, 1000, 20000}))
    for (const std::size_t stride : s.counts({31, 1, 5})) check_other_order(s, count, stride);
  for (const std::size_t count : s.counts({1, 50000})) check_dropped(s, count);
  tutti::sync_wait(s.world, check_coroutines(s));
}

}  // namespace conformance
