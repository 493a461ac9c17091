#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// Tag of a message between two ranks: names the group, its operation and the step of the algorithm. Messages with
/// equal tags between the same two ranks match in order.
struct tag {
  /// Returns the tag of a collective's message: context 15 bits | 0 | sequence 24 | step 24.
  static constexpr std::uint64_t make(std::uint32_t context, std::uint64_t sequence, std::uint32_t step) noexcept {
    return static_cast<std::uint64_t>(context & 0x7fffu) << 49 | (sequence & 0xffffffu) << 24 | (step & 0xffffffu);
  }
  /// Returns the tag of a user message: context 15 bits | 1 | 16 unused | the user's tag 32.
  static constexpr std::uint64_t point_to_point(std::uint32_t context, std::uint32_t user) noexcept {
    return static_cast<std::uint64_t>(context & 0x7fffu) << 49 | std::uint64_t{1} << 48 | user;
  }
  static constexpr std::uint64_t sequence(std::uint64_t t) noexcept { return (t >> 24) & 0xffffffu; }
  /// Returns true if sequence `a` of a tag comes after `b`; they wrap after 24 bits.
  static constexpr bool comes_after(std::uint64_t a, std::uint64_t b) noexcept {
    return ((a - b) & 0xffffffu) - 1 < 0x7fffffu;
  }
  /// Returns the whole sequence number for the 24 bits in a tag: the one that is nearest to `here`.
  static constexpr std::uint64_t whole_sequence(std::uint64_t told, std::uint64_t here) noexcept {
    const std::uint64_t ahead = (told - here) & 0xffffffu, behind = 0x1000000u - ahead;
    return ahead < 0x800000u || behind > here ? here + ahead : here - behind;
  }
  static constexpr std::uint32_t step(std::uint64_t t) noexcept { return static_cast<std::uint32_t>(t & 0xffffffu); }
  /// Returns true if two tags belong to one operation, whatever their steps; false for user messages.
  static constexpr bool of_one_operation(std::uint64_t a, std::uint64_t b) noexcept {
    return a >> 24 == b >> 24 && !is_point_to_point(a);
  }
  /// First of the steps that prepare an operation, whichever it is. Ranks that call different operations exchange their
  /// messages, too, and find the difference afterwards.
  static constexpr std::uint32_t preparing = 0x800000;
  static constexpr bool prepares(std::uint64_t t) noexcept { return (t & preparing) != 0 && !is_point_to_point(t); }
  static constexpr std::uint32_t context(std::uint64_t t) noexcept { return static_cast<std::uint32_t>(t >> 49); }
  static constexpr bool is_point_to_point(std::uint64_t t) noexcept { return (t >> 48 & 1u) != 0; }
};

}  // namespace tutti
