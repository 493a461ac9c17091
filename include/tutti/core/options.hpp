#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <tutti/core/deadline.hpp>
#include <tutti/core/stream_ref.hpp>

namespace tutti {

/// The algorithm of a collective. `automatic` lets algo/selection/choose.hpp choose and is always possible. Any other
/// value must be the same on all ranks; it is a usage_error if the collective has no such algorithm or if it cannot run
/// in this group (see algo/selection/supported.hpp).
enum class algorithm : std::uint8_t {
  automatic,
  direct,
  ring,
  recursive_doubling,
  tree,
  halving_doubling,
  bruck,
  chain,
  hierarchical,
  linear,
  pairwise
};

constexpr const char* name(algorithm a) noexcept {
  constexpr const char* names[] = {"automatic",    "direct",           "ring",    "recursive_doubling",
                                   "tree",         "halving_doubling", "bruck",   "chain",
                                   "hierarchical", "linear",           "pairwise"};
  const auto i = static_cast<std::size_t>(a);  // may come from a peer
  return i < std::size(names) ? names[i] : "unknown";
}

/// Returns the algorithm of that name; `automatic` if there is none.
constexpr algorithm algorithm_of(std::string_view text) noexcept {
  for (std::uint8_t i = 1; text != "unknown" && name(static_cast<algorithm>(i)) != std::string_view{"unknown"}; ++i)
    if (text == name(static_cast<algorithm>(i))) return static_cast<algorithm>(i);
  return algorithm::automatic;
}

/// The order in which a reduction combines the ranks' elements.
enum class reduction_order : std::uint8_t {
  any,  ///< the algorithm's: the same bits on all ranks and in every run
  rank  ///< from rank 0 on, rounded once at the end: bits do not depend on size, algorithm or transport
};

/// The options of one call; every field has a good default.
struct call_options {
  duration timeout = duration{0};                ///< 0: the communicator's
  algorithm via = algorithm::automatic;          ///< any other than automatic is used or refused, never replaced
  stream_ref stream{};                           ///< device backends only
  reduction_order order = reduction_order::any;  ///< rank: a usage_error if no algorithm has it
};

}  // namespace tutti
