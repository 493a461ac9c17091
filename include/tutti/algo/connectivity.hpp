#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti::algo {

/// Connectivity of the ranks of a group.
enum class connectivity : std::uint8_t {
  memory,    ///< all map each other's memory
  messages,  ///< messages between all, at equal cost
  machines   ///< messages, but some ranks share a node and its memory
};

constexpr const char* name(connectivity r) noexcept {
  constexpr const char* names[] = {"memory", "messages", "machines"};
  return names[static_cast<std::size_t>(r)];
}
constexpr std::optional<connectivity> connectivity_of(std::string_view text) noexcept {
  for (const connectivity r : {connectivity::memory, connectivity::messages, connectivity::machines})
    if (text == name(r)) return r;
  return std::nullopt;
}

}  // namespace tutti::algo
