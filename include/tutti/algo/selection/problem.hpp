#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/connectivity.hpp>
#include <tutti/algo/shm/group/group.hpp>

namespace tutti::algo {

/// Properties of a call on which the choice of its algorithm depends. They are equal on all ranks, and so is the
/// choice.
struct problem {
  connectivity links = connectivity::messages;
  int world_size = 1;
  std::size_t bytes = 0;  ///< of the whole message
  std::size_t element = 1;
  int machines = 1;
  int ranks_per_core = 1;  ///< ranks per core, on the node where they are most
  bool even = false;       ///< all nodes have the same number of ranks
};

/// Returns true if the direct algorithms can run: a slot holds at least one element for each rank.
constexpr bool direct_possible(const problem& s) noexcept {
  return s.links == connectivity::memory && s.element * static_cast<std::size_t>(s.world_size) <= shm_group::slot_bytes;
}

/// Returns true if the hierarchical algorithms can run. They are direct inside a node, which may have all ranks but
/// one.
constexpr bool hierarchical_possible(const problem& s) noexcept {
  return s.links == connectivity::machines && s.machines < s.world_size &&
         s.element * static_cast<std::size_t>(s.world_size) <= shm_group::slot_bytes;
}

}  // namespace tutti::algo
