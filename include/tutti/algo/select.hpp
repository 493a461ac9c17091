#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tutti/algo/board.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

/// How the ranks of a world reach each other.
enum class reach : std::uint8_t {
  memory,    ///< all can map each other's memory
  messages,  ///< by messages, all alike
  machines   ///< by messages, but some of them share a machine and its memory
};

constexpr const char* name(reach r) noexcept {
  constexpr const char* names[] = {"memory", "messages", "machines"};
  return names[static_cast<std::size_t>(r)];
}
constexpr std::optional<reach> reach_of(std::string_view text) noexcept {
  for (const reach r : {reach::memory, reach::messages, reach::machines})
    if (text == name(r)) return r;
  return std::nullopt;
}

/// What the choice of an algorithm depends on; equal on all ranks, and so is the choice.
struct situation {
  reach links = reach::messages;
  int world_size = 1;
  std::size_t bytes = 0;  ///< of the whole message
  std::size_t element = 1;
};

/// The thresholds between algorithms, all of them, in bytes of the whole message; measured over TCP on loopback. A
/// machine that differs gets a table of its own (algo/tuning.hpp).
struct thresholds {
  /// Up to here latency counts and recursive doubling's fewer steps win; two ranks send the same bytes either way.
  std::size_t recursive_doubling_bytes = std::size_t{32} << 10, of_two_ranks = std::size_t{128} << 10;
  /// From there up to here halving and doubling's fewer steps win; beyond it the ring, where every rank has one reader.
  std::size_t halving_doubling_bytes = std::size_t{512} << 10;
  /// Up to here blocks are gathered in fewer steps, at the price of turning the buffer.
  std::size_t bruck_bytes = std::size_t{16} << 10;
  /// From here on nobody sends a broadcast's bytes more than once.
  std::size_t chain_bytes = std::size_t{8} << 20;
  /// Up to here a tree's fewer steps win over passing every byte once.
  std::size_t tree_bytes = std::size_t{32} << 10;
};

/// True where the direct algorithms can run at all: a slot holds at least one element for each rank.
constexpr bool direct_possible(const situation& s) noexcept {
  return s.links == reach::memory && s.element * static_cast<std::size_t>(s.world_size) <= board::slot_bytes;
}

constexpr algorithm select_all_reduce(const situation& s, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  if (s.bytes <= (s.world_size <= 2 ? t.of_two_ranks : t.recursive_doubling_bytes))
    return algorithm::recursive_doubling;
  if (s.links == reach::machines) return algorithm::hierarchical;
  return s.world_size > 2 && s.bytes <= t.halving_doubling_bytes ? algorithm::halving_doubling : algorithm::ring;
}

constexpr algorithm select_broadcast(const situation& s, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  return s.world_size > 2 && s.bytes >= t.chain_bytes ? algorithm::chain : algorithm::tree;
}

constexpr algorithm select_reduce_scatter(const situation& s) noexcept {
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

constexpr algorithm select_all_gather(const situation& s, const thresholds& t = {}) noexcept {
  if (direct_possible(s)) return algorithm::direct;
  return s.world_size > 2 && s.bytes <= t.bruck_bytes ? algorithm::bruck : algorithm::ring;
}

}  // namespace tutti::algo
