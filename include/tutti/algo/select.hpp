#pragma once
#include <cstddef>

#include <tutti/algo/board.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

/// What the choice of an algorithm depends on; equal on all ranks, and so is the choice.
struct situation {
  bool mapped = false;  ///< all ranks can map each other's memory
  int world_size = 1;
  std::size_t bytes = 0;  ///< of the whole message
  std::size_t element = 1;
};

/// The thresholds of the library, all of them.
struct thresholds {
  /// Up to here latency counts and recursive doubling's fewer steps win; beyond it the ring's fewer bytes.
  std::size_t recursive_doubling_bytes = std::size_t{32} << 10;
  /// Up to here a tree's fewer steps win over passing every byte once.
  std::size_t tree_bytes = std::size_t{32} << 10;
};

/// True where the direct algorithms can run at all: a slot holds at least one element for each rank.
constexpr bool direct_possible(const situation& s) noexcept {
  return s.mapped && s.element * static_cast<std::size_t>(s.world_size) <= board::slot_bytes;
}

constexpr algorithm select_all_reduce(const situation& s, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  return s.bytes <= t.recursive_doubling_bytes ? algorithm::recursive_doubling : algorithm::ring;
}

constexpr algorithm select_broadcast(const situation& s) noexcept {
  return direct_possible(s) ? algorithm::direct : algorithm::tree;
}

/// For all_gather and reduce_scatter.
constexpr algorithm select_gather(const situation& s) noexcept {
  return direct_possible(s) ? algorithm::direct : algorithm::ring;
}

constexpr algorithm select_reduce(const situation& s, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  return s.bytes <= t.tree_bytes ? algorithm::tree : algorithm::ring;
}

constexpr algorithm select_scan(const situation& s, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  return s.bytes <= t.recursive_doubling_bytes ? algorithm::recursive_doubling : algorithm::ring;
}

/// For gather and scatter; a tree needs to know the lengths of all blocks on all ranks, so they must be equal.
constexpr algorithm select_rooted(const situation& s, bool equal_blocks, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  return equal_blocks && s.bytes <= t.tree_bytes ? algorithm::tree : algorithm::linear;
}

constexpr algorithm select_all_to_all(const situation& s) noexcept {
  return direct_possible(s) ? algorithm::direct : algorithm::pairwise;
}

}  // namespace tutti::algo
