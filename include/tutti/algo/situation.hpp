#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/board.hpp>
#include <tutti/algo/reach.hpp>

namespace tutti::algo {

/// What the choice of an algorithm depends on; equal on all ranks, and so is the choice.
struct situation {
  reach links = reach::messages;
  int world_size = 1;
  std::size_t bytes = 0;  ///< of the whole message
  std::size_t element = 1;
  int machines = 1;
  int crowd = 1;      ///< ranks to a core, of the machine where they are most
  bool even = false;  ///< all machines have equally many ranks
};

/// True where the direct algorithms can run at all: a slot holds at least one element for each rank.
constexpr bool direct_possible(const situation& s) noexcept {
  return s.links == reach::memory && s.element * static_cast<std::size_t>(s.world_size) <= board::slot_bytes;
}

/// True where the hierarchical ones can: inside a machine, which may have all ranks but one, they are direct.
constexpr bool hierarchical_possible(const situation& s) noexcept {
  return s.links == reach::machines && s.machines < s.world_size &&
         s.element * static_cast<std::size_t>(s.world_size) <= board::slot_bytes;
}

}  // namespace tutti::algo
