#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "options.hpp"

namespace bench {

using communicator = tutti::communicator<>;

struct timing {
  double us = 0;                      ///< per operation, mean over ranks of their mean
  double p50 = 0, p99 = 0, most = 0;  ///< per round, of the slowest rank
  std::uint64_t wrong = 0;
};

/// Runs `operation()`, which returns a handle, as nccl-tests does: warm-up, barrier, rounds back to back.
template <class Operation>
timing time_rounds(communicator& world, const options& o, Operation operation) {
  const auto round = [&] {
    std::vector<tutti::op> flights;
    for (int i = 0; i < o.aggregate; ++i) flights.push_back(operation());
    for (auto& f : flights) f.wait();
  };
  for (int i = 0; i < o.warmup; ++i) round();
  world.barrier().wait();
  std::vector<double> rounds(static_cast<std::size_t>(o.iterations));
  const auto start = tutti::clock::now();
  auto before = start;
  for (double& us : rounds) {
    round();
    const auto now = tutti::clock::now();
    us = std::chrono::duration<double, std::micro>(now - before).count() / o.aggregate;
    before = now;
  }
  const double mine = std::chrono::duration<double, std::micro>(before - start).count() / (o.iterations * o.aggregate);
  timing t;
  t.us = world.all_reduce(mine, tutti::mean).wait();
  world.all_reduce(rounds, tutti::max).wait();
  std::sort(rounds.begin(), rounds.end());
  t.p50 = rounds[rounds.size() / 2];
  t.p99 = rounds[rounds.size() * 99 / 100];
  t.most = rounds.back();
  return t;
}

// Small integers whose sums and products over any number of ranks are exact in every type, in any order.
template <class T>
T operand(int rank, std::size_t i, const std::string& op) {
  if (op == "prod") return static_cast<T>(static_cast<float>(i % 5 == 0 && rank == 0 ? 2 : 1));
  return static_cast<T>(static_cast<float>((i + static_cast<std::size_t>(rank)) % 3));
}

template <class T>
T expected(int world_size, std::size_t i, const std::string& op) {
  float value = op == "prod" ? 1.0F : op == "min" ? 2.0F : 0.0F;
  for (int r = 0; r < world_size; ++r) {
    const auto x = static_cast<float>(operand<T>(r, i, op));
    if (op == "prod")
      value *= x;
    else if (op == "min")
      value = std::min(value, x);
    else if (op == "max")
      value = std::max(value, x);
    else
      value += x;
  }
  if (op == "avg") {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<int>(value) / world_size);
    else
      return static_cast<T>(value / static_cast<float>(world_size));
  }
  return static_cast<T>(value);
}

template <class T, class Op>
timing all_reduce(communicator& world, const options& o, const tutti::issue& how, std::size_t count, Op op,
                  bool in_place) {
  std::vector<T> in(count), out(in_place ? 0 : count);
  const auto operation = [&] { return in_place ? world.all_reduce(in, op, how) : world.all_reduce(in, out, op, how); };
  std::uint64_t wrong = 0;
  for (int k = 0; k < o.checks; ++k) {
    for (std::size_t i = 0; i < count; ++i) in[i] = operand<T>(world.rank(), i, o.op);
    operation().wait();
    const std::vector<T>& result = in_place ? in : out;
    for (std::size_t i = 0; i < count; ++i)
      wrong += static_cast<float>(result[i]) != static_cast<float>(expected<T>(world.size(), i, o.op));
  }
  std::fill(in.begin(), in.end(), T{});
  timing t = time_rounds(world, o, operation);
  t.wrong = world.all_reduce(wrong).wait();
  return t;
}

template <class T>
timing broadcast(communicator& world, const options& o, const tutti::issue& how, std::size_t count) {
  std::vector<T> data(count);
  std::uint64_t wrong = 0;
  for (int k = 0; k < o.checks; ++k) {
    for (std::size_t i = 0; i < count; ++i) data[i] = operand<T>(world.rank(), i, o.op);
    world.broadcast(data, o.root, how).wait();
    for (std::size_t i = 0; i < count; ++i)
      wrong += static_cast<float>(data[i]) != static_cast<float>(operand<T>(o.root, i, o.op));
  }
  timing t = time_rounds(world, o, [&] { return world.broadcast(data, o.root, how); });
  t.wrong = world.all_reduce(wrong).wait();
  return t;
}

}  // namespace bench
