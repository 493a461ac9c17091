#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tutti/core/hash.hpp>
#include <tutti/core/kernels/lanes.hpp>

namespace tutti::algo {

/// Whether sums that go into memory which other cores have at hand ask early for its lines: between far cores of one
/// processor that saves a third, of the next it costs as much. Each rank measures it, piece by piece of what it folds,
/// for itself, since the bits are the same; and apart for each power of two, as caches hold one length and not the
/// next, and for each kernel, as some take longer than memory.
class claim_choice {
 public:
  static constexpr std::size_t worth_timing = std::size_t{64} << 10;  ///< bytes of a piece

  /// Folds that take alike: of so many bytes each, by the function at this address.
  struct kind {
    std::uintptr_t kernel;
    std::size_t bytes;
  };

  /// How to store the next piece of such a fold: as `claiming`, or without.
  [[nodiscard]] stores next(kind k, stores claiming) const noexcept {
    return records_[place(k)].claims_next() ? claiming : stores::unclaimed;
  }
  /// A piece of such a fold, of so many bytes, took so long, stored as next() said.
  void took(kind k, std::size_t piece, std::uint64_t nanoseconds) noexcept {
    record& r = records_[place(k)];
    double& pace = r.pace[r.claims_next() ? 1 : 0];
    const double now = static_cast<double>(nanoseconds) / static_cast<double>(piece);
    // One that met another program, or pages of which there were none yet, tells nothing of those that follow.
    pace = pace == 0 || now < pace / 2 ? now : pace + ((std::min)(now, 2 * pace) - pace) / 8;
    ++r.pieces;
  }

 private:
  struct record {
    static constexpr std::uint32_t compared = 16, rare = 32;
    double pace[2] = {};  // nanoseconds a byte: without, and with claims
    std::uint32_t pieces = 0;

    [[nodiscard]] bool claims_next() const noexcept {
      if (pieces < compared) return pieces % 2 != 0;
      return (pace[1] < pace[0]) != (pieces % rare == 0);  // now and then the other: cores may have moved
    }
  };
  static constexpr std::size_t shortest = std::bit_width(worth_timing), lengths = 10, kernels = 8;
  /// Two kernels may come to the same place: they are told apart well enough where few are in use.
  static std::size_t place(kind k) noexcept {
    const std::size_t length = std::clamp<std::size_t>(std::bit_width(k.bytes), shortest, shortest + lengths - 1);
    return tutti::detail::mix(0, k.kernel) % kernels * lengths + length - shortest;
  }

  std::array<record, kernels * lengths> records_{};
};

}  // namespace tutti::algo
