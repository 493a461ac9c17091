#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/sharded_parameters.hpp>

#include "support/expect.hpp"
#include "train/sharded/undivided.hpp"

// A network whose units are divided among the ranks, beside the same undivided.
namespace sharded_units {

using namespace tutti::train;
using tutti_test::expect;
using world_t = tutti::communicator<tutti::threads>;
using counts = std::vector<std::size_t>;

inline std::size_t total(const counts& units) {
  std::size_t n = 0;
  for (const std::size_t u : units) n += u;
  return n;
}

/// Element e of unit u is element place + e of the undivided model.
template <class F>
void each_unit(const counts& units, F f) {
  std::size_t place = 0;
  for (std::size_t u = 0; u < units.size(); place += units[u++]) f(u, place);
}

template <class T, class Parameters>
void assign_all(Parameters& p, const counts& units) {
  const auto wide = undivided::start<master_t<T>>(total(units));
  std::vector<T> whole(wide.size());
  narrow<T>(wide, whole);
  each_unit(units, [&](std::size_t u, std::size_t place) { p.assign(u, std::span{whole}.subspan(place, units[u])); });
}

/// Reads a whole unit; returns what does not depend on its place.
template <class Parameters, class T>
tutti::task<> read(Parameters& p, std::size_t u, std::size_t place, std::vector<T>& into) {
  const auto w = co_await p.gather(u);
  std::copy(w.begin(), w.end(), into.begin() + static_cast<std::ptrdiff_t>(place));
  p.release(u);
}

/// A step of a network: forward, then backward; in two micro-batches where `halves` is 2.
template <class T, class Parameters>
tutti::task<> pass(Parameters& p, const counts& units, int rank, int step, int halves) {
  using wide = master_t<T>;
  const auto g = undivided::gradients<wide>(total(units), rank, step);
  p.begin(undivided::weight(rank, step));
  for (int half = 0; half < halves; ++half) {
    std::vector<T> seen(g.size());
    std::size_t place = 0;
    for (std::size_t u = 0; u < units.size(); place += units[u++]) co_await read(p, u, place, seen);
    for (std::size_t u = units.size(); u-- > 0;) {
      place -= units[u];
      const auto w = co_await p.gather(u);
      expect(std::equal(w.begin(), w.end(), seen.begin() + static_cast<std::ptrdiff_t>(place)), "other parameters");
      const auto mine = p.gradients(u);
      for (std::size_t e = 0; e < units[u]; ++e)
        mine[e] += halves == 1 ? g[place + e] : half == 0 ? g[place + e] - 1 : wide(1);
      p.release(u);
      co_await p.scatter(u);
    }
  }
  co_await p.step();
}

template <class T, class World, class Rule>
void check_steps(World& world, const counts& units, const Rule& rule) {
  const int steps = 4;
  auto p = shard_parameters<T>(world, units, rule);
  assign_all<T>(p, units);
  for (int step = 1; step <= steps; ++step)
    tutti::sync_wait(world, pass<T>(p, units, world.rank(), step, 1 + step % 2));
  std::vector<T> result(total(units));
  each_unit(units, [&](std::size_t u, std::size_t place) { tutti::sync_wait(world, read(p, u, place, result)); });
  const auto wide = undivided::steps<master_t<T>>(result.size(), world.size(), steps, rule);
  std::vector<T> expected(wide.size());
  narrow<T>(wide, expected);
  const auto equal = [](std::span<const T> a, std::span<const T> b) {
    return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
  };
  expect(equal(result, expected), "not the undivided step");
  const auto own = p.shards();
  each_unit(units, [&](std::size_t u, std::size_t place) {
    const auto& mine = own[u * (1 + Rule::slots)];
    const auto all = std::as_bytes(std::span{wide}.subspan(place, units[u]));
    expect(std::ranges::equal(mine.part.bytes, all.subspan(mine.first * sizeof(wide[0]), mine.part.bytes.size())),
           "the master is not that of the undivided step");
  });
}

}  // namespace sharded_units
