#pragma once
#include <algorithm>
#include <cstdint>

#include <tutti/core/status.hpp>

namespace tutti {

/// Mismatch report: how the calls of two ranks differ, as one of them found by a message or step of the other. It is
/// packed into status::detail, which every rank gets; status::other is the rank that found the difference, and
/// status::peer the rank whose message it was.
struct message_mismatch {
  enum class unit : std::uint8_t { bytes, elements, algorithms };
  static constexpr std::uint64_t most_of_call = (1U << 19) - 2, most_of_user = (1U << 26) - 1;
  static constexpr std::uint64_t any = ~std::uint64_t{0};  ///< a number of elements that each rank may choose
  static constexpr unsigned number_bits = 10;

  std::uint16_t sent = 0, expected = 0;  ///< short ids of the two calls; 0: unknown, or a user message
  std::uint64_t bytes = 0, room = 0;     ///< lengths, or tutti::algorithm, of the two if they called the same
  std::uint32_t context = 0;             ///< of the group; packed into a mark of 4 bits
  std::uint64_t sequence = 0;            ///< of the call; its last 10 bits are packed
  unit of = unit::bytes;

  /// Returns the longest length that can be packed.
  [[nodiscard]] constexpr std::uint64_t most() const noexcept { return sent == 0 ? most_of_user : most_of_call; }
  [[nodiscard]] constexpr bool calls_differ() const noexcept { return sent != expected && sent != 0 && expected != 0; }
  [[nodiscard]] static constexpr std::uint32_t mark_of(std::uint32_t context) noexcept {
    return context == 0 ? 0 : (context & 0x7fffU) % 15 + 1;
  }
  /// Returns the whole sequence number of the call, as seen by a rank of its group whose own number, `here`, is less
  /// than 512 calls away.
  [[nodiscard]] constexpr std::uint64_t number_near(std::uint64_t here) const noexcept {
    constexpr std::uint64_t turn = std::uint64_t{1} << number_bits, half = turn / 2;
    const std::uint64_t ahead = (sequence - here) % turn;
    return ahead < half ? here + ahead : here + ahead >= turn ? here + ahead - turn : 0;
  }

  /// Packs the report. Bits from the highest, for different calls: 1 | 17 unused | mark 4 | number 10 | sent 16 |
  /// expected 16. For equal calls: 0 | elements 1 | collective and type 9 | algorithms 1 | mark 4 | number 10 | two
  /// lengths of 19, whose last value is `any`. For a user message, which has no number: two lengths of 26.
  [[nodiscard]] constexpr status failure(int peer = -1, int finder = -1) const noexcept {
    const auto told = [](std::uint64_t n) { return n == any ? most_of_call + 1 : (std::min)(n, most_of_call); };
    const std::uint64_t place = std::uint64_t{mark_of(context)} << number_bits | sequence % (1U << number_bits);
    std::uint64_t all = 0;
    if (calls_differ()) {
      all = std::uint64_t{1} << 63 | place << 32 | std::uint64_t{sent} << 16 | expected;
    } else if (const std::uint64_t call = (std::max)(sent, expected) >> 7; call != 0) {
      const std::uint64_t elements = of == unit::elements, algorithms = of == unit::algorithms;
      all = elements << 62 | call << 53 | algorithms << 52 | place << 38 | told(bytes) << 19 | told(room);
    } else {
      all = (std::min)(bytes, most_of_user) << 26 | (std::min)(room, most_of_user);
    }
    return {errc::mismatch, finder_of(finder), peer, all};
  }
  /// Unpacks a report. For equal calls, reduction and root are not known.
  static constexpr message_mismatch in(const status& s) noexcept {
    message_mismatch m;
    const auto part = [&](unsigned at, unsigned bits) { return s.detail >> at & ((std::uint64_t{1} << bits) - 1); };
    if (part(63, 1) != 0) {
      m.sent = static_cast<std::uint16_t>(part(16, 16));
      m.expected = static_cast<std::uint16_t>(part(0, 16));
      m.place(part(32, 14));
    } else if (part(53, 9) != 0) {
      m.of = part(52, 1) != 0 ? unit::algorithms : static_cast<unit>(part(62, 1));
      m.sent = m.expected = static_cast<std::uint16_t>(part(53, 9) << 7);
      m.place(part(38, 14));
      const auto meant = [](std::uint64_t told) { return told > most_of_call ? any : told; };
      m.bytes = meant(part(19, 19));
      m.room = meant(part(0, 19));
    } else {
      m.bytes = part(26, 26);
      m.room = part(0, 26);
    }
    return m;
  }

  /// Returns a rank as status::other holds it: rank + 1, or 0 for none.
  static constexpr std::uint16_t finder_of(int rank) noexcept {
    return static_cast<std::uint16_t>(rank < 0 || rank >= 0xffff ? 0 : rank + 1);
  }

 private:
  // Unpacks mark and number; `context` is then the mark.
  constexpr void place(std::uint64_t told) noexcept {
    context = static_cast<std::uint32_t>(told >> number_bits);
    sequence = told % (1U << number_bits);
  }
};

}  // namespace tutti
