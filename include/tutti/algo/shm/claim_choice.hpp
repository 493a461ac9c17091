#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tutti/core/hash.hpp>
#include <tutti/core/kernels/lanes.hpp>

namespace tutti::algo {

/// Measured decision whether folds into memory that other cores have cached prefetch its lines for writing. Between
/// distant cores of one processor that saves a third of the time, on another processor it costs as much. Each rank
/// decides for itself, chunk by chunk, since the results are the same bits; and separately for each power of two of the
/// length, as a cache holds one length and not the next, and for each kernel, as some are slower than memory.
class claim_choice {
 public:
  static constexpr std::size_t worth_timing = std::size_t{64} << 10;  ///< bytes of a chunk

  /// Class of folds that take equally long: by the kernel at this address, of `bytes` in all.
  struct kind {
    std::uintptr_t kernel;
    std::size_t bytes;
  };

  /// Returns the kind of stores for the next chunk of such a fold: `claiming`, or `stores::unclaimed`.
  [[nodiscard]] stores next(kind k, stores claiming) const noexcept {
    return records_[place(k)].claims_next() ? claiming : stores::unclaimed;
  }
  /// Records the time of a chunk of `piece` bytes, which was stored as next() said.
  void took(kind k, std::size_t piece, std::uint64_t nanoseconds) noexcept {
    record& r = records_[place(k)];
    double& pace = r.pace[r.claims_next() ? 1 : 0];
    const double now = static_cast<double>(nanoseconds) / static_cast<double>(piece);
    // A chunk that was delayed by another program or by page faults must not decide: its time is cut to twice the
    // average.
    pace = pace == 0 || now < pace / 2 ? now : pace + ((std::min)(now, 2 * pace) - pace) / 8;
    ++r.pieces;
  }

 private:
  struct record {
    static constexpr std::uint32_t compared = 16, rare = 32;
    double pace[2] = {};  // nanoseconds per byte: without and with prefetching
    std::uint32_t pieces = 0;

    [[nodiscard]] bool claims_next() const noexcept {
      if (pieces < compared) return pieces % 2 != 0;
      return (pace[1] < pace[0]) != (pieces % rare == 0);  // now and then the other: cores may have moved
    }
  };
  static constexpr std::size_t shortest = std::bit_width(worth_timing), lengths = 10, kernels = 8;
  /// Returns the index of a class. Two kernels may share one; that is harmless where few are in use.
  static std::size_t place(kind k) noexcept {
    const std::size_t length = std::clamp<std::size_t>(std::bit_width(k.bytes), shortest, shortest + lengths - 1);
    return tutti::detail::mix(0, k.kernel) % kernels * lengths + length - shortest;
  }

  std::array<record, kernels * lengths> records_{};
};

}  // namespace tutti::algo
