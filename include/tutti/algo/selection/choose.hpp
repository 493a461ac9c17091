#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <tutti/algo/collectives.hpp>
#include <tutti/algo/selection/cost.hpp>
#include <tutti/algo/selection/problem.hpp>
#include <tutti/algo/selection/supported.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/options.hpp>

/// Choice of an algorithm for `automatic` where no table (algo/selection/table.hpp) decides: the cheapest by
/// algo/selection/cost.hpp among those that can run. It depends only on what all ranks know, in integers, so all ranks
/// choose the same.
namespace tutti::algo {

/// Returns the work of a collective over messages by a flat algorithm; empty if the collective has a single one.
template <class Args>
constexpr work work_of([[maybe_unused]] algorithm via, [[maybe_unused]] const extent& e) noexcept {
  if constexpr (requires { traits<Args>::cost(via, e); })
    return traits<Args>::cost(via, e);
  else
    return {};
}

/// Returns the time in picoseconds in a situation in which the algorithm can run; `e` is the situation's extent. 0 for
/// `direct`, which is always faster than messages.
template <class Args>
constexpr std::uint64_t estimate(algorithm via, const problem& s, const extent& e) noexcept;

/// Returns the algorithm that `automatic` stands for.
template <class Args>
constexpr algorithm select(const problem& s) noexcept {
  if (direct_possible(s) && has_algorithm<Args>(algorithm::direct)) return algorithm::direct;
  const extent e(s.world_size, s.bytes);
  algorithm best = algorithm::automatic;
  std::uint64_t least = (std::numeric_limits<std::uint64_t>::max)();
  const auto consider = [&](algorithm a) {
    if (!is_supported<Args>(a, s)) return;
    const std::uint64_t time = estimate<Args>(a, s, e);
    if (time >= least) return;
    best = a;
    least = time;
  };
  // Unrolled, so that each formula is computed for an algorithm known at compile time: 9 ns instead of 16.
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    (consider(supported_algorithms<Args>[Index]), ...);
  }(std::make_index_sequence<supported_algorithms<Args>.size()>{});
  return best;
}

/// Returns the situation of several nodes with one rank each.
constexpr problem between(int machines, std::size_t bytes, std::size_t element) noexcept {
  return {connectivity::machines, machines, bytes, element, machines};
}

namespace detail {

/// Returns the time of a hierarchical algorithm in picoseconds: that inside the nodes, taken as equally large, and that
/// between them.
template <class Args>
constexpr std::uint64_t estimate_hierarchical(const problem& s) noexcept {
  const int inside = (s.world_size + s.machines - 1) / s.machines;
  const auto ranks_per_core = static_cast<std::uint64_t>(s.ranks_per_core);
  // All ranks of a node exchange a part, or each its block; in trees, one rank acts for its node.
  constexpr bool all = std::same_as<Args, all_reduce_args> || by_equal_machines<Args>;
  const std::size_t part = all ? s.bytes / static_cast<std::size_t>(inside) : s.bytes;
  const std::uint64_t lines = all ? static_cast<std::uint64_t>(inside) : 1;
  // The algorithm between nodes: reduces use a tree of nodes, blocks go from each node to each, whatever would cost
  // less.
  const algorithm across = std::same_as<Args, reduce_args> ? algorithm::tree
                           : by_equal_machines<Args>       ? algorithm::ring
                                                           : select<Args>(between(s.machines, part, s.element));
  return time_of(inside_work({inside, s.bytes}), through_memory, ranks_per_core) +
         time_of(work_of<Args>(across, {s.machines, part}), between_machines, ranks_per_core, lines);
}

}  // namespace detail

template <class Args>
constexpr std::uint64_t estimate(algorithm via, const problem& s, const extent& e) noexcept {
  if (via == algorithm::direct || s.world_size < 2) return 0;
  if constexpr (has_algorithm<Args>(algorithm::hierarchical))
    if (via == algorithm::hierarchical) return detail::estimate_hierarchical<Args>(s);
  const int lines = s.links == connectivity::machines ? (s.world_size + s.machines - 1) / s.machines : 1;
  return time_of(work_of<Args>(via, e), cost_of(s), static_cast<std::uint64_t>(s.ranks_per_core),
                 static_cast<std::uint64_t>(lines));
}

template <class Args>
constexpr std::uint64_t estimate(algorithm via, const problem& s) noexcept {
  return estimate<Args>(via, s, extent(s.world_size, s.bytes));
}

}  // namespace tutti::algo
