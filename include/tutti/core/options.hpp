#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <tutti/core/deadline.hpp>
#include <tutti/core/stream_ref.hpp>

namespace tutti {

/// How a collective moves its bytes. `automatic` asks algo/select.hpp and always can; anything else must be the same on
/// all ranks, and is a usage_error where the collective does not have it, or it cannot run (see algo/asked.hpp).
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

/// The algorithm of that name; `automatic` when there is none.
constexpr algorithm algorithm_of(std::string_view text) noexcept {
  for (std::uint8_t i = 1; text != "unknown" && name(static_cast<algorithm>(i)) != std::string_view{"unknown"}; ++i)
    if (text == name(static_cast<algorithm>(i))) return static_cast<algorithm>(i);
  return algorithm::automatic;
}

/// In which order a reduction takes the ranks' elements.
enum class reduction_order : std::uint8_t {
  any,  ///< as the algorithm does; all ranks have the same bits, and two runs
  rank  ///< from rank 0 on, with one rounding at the end: the bits depend on neither size nor algorithm nor transport
};

/// What can be said about one operation; every field has a good default.
struct issue {
  duration timeout = duration{0};                ///< 0: the communicator's
  algorithm via = algorithm::automatic;          ///< another one is used or refused, never replaced
  stream_ref stream{};                           ///< device backends only
  reduction_order order = reduction_order::any;  ///< rank: a usage_error where no algorithm has it
};

}  // namespace tutti
