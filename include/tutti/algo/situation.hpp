#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tutti/algo/board.hpp>

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
