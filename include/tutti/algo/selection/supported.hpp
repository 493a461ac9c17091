#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>

#include <tutti/algo/collectives.hpp>
#include <tutti/algo/selection/problem.hpp>
#include <tutti/algo/selection/rank_ordered.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

/// List of the algorithms that a caller may name in `call_options::via` for a collective, besides `automatic`; empty
/// for operations that have a single implementation (barrier, send, recv, recv_any).
template <class Args>
inline constexpr auto supported_algorithms = [] {
  if constexpr (requires { traits<Args>::algorithms; })
    return traits<Args>::algorithms;
  else
    return std::array<algorithm, 0>{};
}();

/// True for collectives whose hierarchical algorithm needs the same number of ranks on every node.
template <class Args>
inline constexpr bool by_equal_machines =
    std::same_as<Args, all_gather_args> || std::same_as<Args, reduce_scatter_args>;

template <class Args>
constexpr bool has_algorithm(algorithm via) noexcept {
  const auto& all = supported_algorithms<Args>;
  return via == algorithm::automatic || std::find(all.begin(), all.end(), via) != all.end();
}

/// Returns true if `via` may be named for this collective in situation `s`; `automatic` always may.
template <class Args>
constexpr bool is_supported(algorithm via, const problem& s) noexcept {
  return has_algorithm<Args>(via) && (via != algorithm::direct || direct_possible(s)) &&
         (via != algorithm::hierarchical || (hierarchical_possible(s) && (!by_equal_machines<Args> || s.even)));
}

/// Returns the text of the error for a `via` that is_supported() rejects: the reason, and the algorithms that are
/// available.
template <class Args>
std::string refusal(algorithm via, const problem& s) {
  std::string text;
  if (has_algorithm<Args>(via) && via == algorithm::hierarchical)
    text = "algorithm hierarchical needs ranks on several machines, " +
           std::string(by_equal_machines<Args> ? "equally many on each, at least two, which share memory, "
                                               : "with several on one of them that share its memory, ") +
           "and elements of which a slot of " + std::to_string(shm_group::slot_bytes >> 10) + " KiB holds one per rank";
  else if (has_algorithm<Args>(via))
    text = "algorithm " + std::string(name(via)) +
           " needs a world whose ranks map each other's memory, and elements of which a slot of " +
           std::to_string(shm_group::slot_bytes >> 10) + " KiB holds one per rank";
  else
    text = "there is no algorithm " + std::string(name(via)) + " for it";
  text += "; ask for automatic";
  std::string last;
  for (const algorithm a : supported_algorithms<Args>) {
    if (!is_supported<Args>(a, s)) continue;
    if (!last.empty()) text += ", " + last;
    last = name(a);
  }
  return last.empty() ? text : text + " or " + last;
}

}  // namespace tutti::algo
