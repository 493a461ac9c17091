#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/core/args.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction/ops.hpp>

namespace tutti::algo {

namespace detail {

using tutti::detail::mix;

}  // namespace detail

/// Signature of a call, which must be equal on all ranks: the collective, its sequence number in the group, the count,
/// size and type of the elements, the reduction with the divisor of a mean_over, the root. Other values that a
/// reduction captures may differ between ranks.
struct call_signature {
  static constexpr std::uint64_t any_count = ~std::uint64_t{0};  ///< each rank has its own count
  static constexpr std::uint64_t of_split = 1;                   ///< `rest` of the all_gather inside a split
  static constexpr std::uint64_t of_close = 2;                   ///< and of the one inside close()
  static constexpr std::uint8_t no_reduction = 15;
  struct packed {
    std::uint64_t words[4];
  };

  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t rest = 0;  ///< root, divisor, or hash of all blocks' lengths if every rank knows them
  std::uint32_t element_bytes = 1;
  collective what = collective::none;
  dtype type = dtype::u8;
  std::uint8_t with = no_reduction;  ///< a reduction_kind
  algorithm via = {};                ///< set if it goes by messages although the ranks share memory

  friend constexpr bool operator==(const call_signature&, const call_signature&) = default;

  [[nodiscard]] constexpr packed pack() const noexcept {
    const std::uint64_t kinds = static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(type) << 8 |
                                std::uint64_t{with} << 16 | static_cast<std::uint64_t>(via) << 24 |
                                std::uint64_t{element_bytes} << 32;
    return {{sequence, count, rest, kinds}};
  }
  static constexpr call_signature unpack(const packed& p) noexcept {
    const std::uint64_t kinds = p.words[3];
    return {p.words[0],
            p.words[1],
            p.words[2],
            static_cast<std::uint32_t>(kinds >> 32),
            static_cast<collective>(kinds & 0xff),
            static_cast<dtype>(kinds >> 8 & 0xff),
            static_cast<std::uint8_t>(kinds >> 16 & 0xff),
            static_cast<algorithm>(kinds >> 24 & 0xff)};
  }
  /// Returns a hash of the signature. Signatures that differ in one word never collide, because the factors are odd;
  /// the four products are independent of each other.
  [[nodiscard]] constexpr std::uint64_t fingerprint() const noexcept {
    const packed p = pack();
    return p.words[0] * 0x9e3779b97f4a7c15 + p.words[1] * 0xd1342543de82ef95 + p.words[2] * 0xaf251af3b0f025b5 +
           p.words[3] * 0xb564ef22ec7aece5;
  }

  /// Adds a divisor (0 for none) to the upper half of `rest`, which a root does not use.
  static constexpr std::uint64_t rest_with(std::uint64_t rest, std::uint64_t divisor) noexcept {
    return divisor == 0 ? rest : rest ^ detail::mix(0, divisor) << 32;
  }
  [[nodiscard]] constexpr std::uint32_t root() const noexcept { return static_cast<std::uint32_t>(rest); }
  [[nodiscard]] constexpr bool divides() const noexcept {
    return with == static_cast<std::uint8_t>(reduction_kind::mean_over);
  }

  /// Returns `rest` for an all_gather inside the call named `within`, which is null for a call of the user's.
  static constexpr std::uint64_t of_part(const char* within) noexcept {
    if (within == nullptr) return 0;
    return *within == 'c' ? of_close : of_split;
  }
  [[nodiscard]] constexpr bool closes() const noexcept { return what == collective::all_gather && rest == of_close; }
  [[nodiscard]] constexpr bool splits() const noexcept { return what == collective::all_gather && rest == of_split; }
  [[nodiscard]] constexpr bool has_root() const noexcept { return tutti::has_root(what); }
  /// Returns true if a block's length may be known only to the two ranks that exchange it. The v-variants in which all
  /// ranks know all lengths are collectives of their own.
  [[nodiscard]] constexpr bool is_between_two() const noexcept {
    return what == collective::gather || what == collective::scatter || what == collective::all_to_all;
  }
  /// The bits of a short id that say neither reduction nor root.
  static constexpr std::uint16_t plain_short_id = no_reduction << 3;
  static_assert(static_cast<unsigned>(collective::count) <= 16, "a short id has four bits for the collective");
  static_assert(dtype_count <= 32 && static_cast<unsigned>(reduction_kind::mean_over) < no_reduction);
  /// Returns the short id, which is sent beside the length of a message and is never 0: collective 4 bits, type 5,
  /// reduction 4, and 3 bits of the root, else of the divisor, else of the size of elements that have no type.
  [[nodiscard]] constexpr std::uint16_t short_id() const noexcept {
    const std::uint64_t of_size = type == dtype::opaque ? element_bytes ^ element_bytes >> 3 ^ element_bytes >> 6 : 0;
    const std::uint64_t last = has_root() ? rest : divides() ? rest >> 61 : of_size;
    return static_cast<std::uint16_t>(static_cast<unsigned>(what) << 12 | (static_cast<unsigned>(type) & 31U) << 7 |
                                      (with & 15U) << 3 | static_cast<unsigned>(last & 7));
  }
  /// Returns the signature that a short id stands for, without element size and root.
  static constexpr call_signature of_short_id(std::uint16_t short_id) noexcept {
    call_signature c;
    c.what = static_cast<collective>(short_id >> 12);
    c.type = static_cast<dtype>(short_id >> 7 & 31U);
    c.element_bytes = 0;
    c.with = static_cast<std::uint8_t>(short_id >> 3 & 15U);
    return c;
  }
};

}  // namespace tutti::algo
