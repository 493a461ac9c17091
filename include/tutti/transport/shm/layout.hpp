#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/transport/shm/control_block.hpp>

namespace tutti {

/// Layout of the segment that the ranks of one node share: the shm_control_block first, then an address range for the
/// heap of each rank. Ranks are local ranks.
struct shm_layout {
  /// Version, which changes whenever ranks built before and after could not share a segment.
  static constexpr std::uint32_t version = 7;
  static constexpr int most_ranks = 4096;
  static constexpr std::uint64_t least_heap_bytes = 1U << 20, most_heap_bytes = std::uint64_t{1} << 46;

  int ranks = 0;
  std::uint64_t area_bytes = 0;  ///< whole pages
  std::uint64_t heap_bytes = 0;  ///< of every rank; whole pages

  /// Returns the layout for this number of ranks. Throws usage_error if the number of ranks or bytes is out of range.
  static shm_layout of(int ranks, std::uint64_t heap_bytes) {
    if (ranks < 1 || ranks > most_ranks || heap_bytes > most_heap_bytes) {
      throw usage_error("shared memory for " + std::to_string(ranks) + " ranks with " + std::to_string(heap_bytes) +
                        " bytes each: 1 to " + std::to_string(most_ranks) + " ranks and at most " +
                        os::format_bytes(most_heap_bytes) + " are possible");
    }
    return {ranks, whole_pages(shm_control_block::bytes(ranks)), whole_pages(heap_bytes)};
  }

  /// Returns the bytes of address space for a rank's heap if the user names none. They are ample, as only allocated
  /// memory costs anything, but fewer if the limits of the process require it.
  static std::uint64_t default_heap_bytes(int ranks) noexcept {
    constexpr std::uint64_t most = std::uint64_t{64} << 30, most_together = std::uint64_t{4} << 40;
    const auto n = static_cast<std::uint64_t>((std::max)(ranks, 1));
    const std::uint64_t limit = (std::min)(limit_of(RLIMIT_AS), file_limit());
    return (std::max)(least_heap_bytes, (std::min)({most, most_together / n, limit / 4 / n}));
  }

  /// Returns the bytes of the largest segment that this process may make; the kernel answers a larger one with SIGXFSZ.
  static std::uint64_t file_limit() noexcept { return limit_of(RLIMIT_FSIZE); }

  /// Returns the offset of a rank's heap. Heaps are their size and a few pages apart (any small odd number of pages
  /// does). Ranks allocate alike, so the operands of a reduction have one offset in all heaps. If heaps were 256 MiB
  /// apart, or a multiple, such lines would have one tag in the first-level cache of AMD's cores, which then holds only
  /// one of them: a sum of two would run at a fourteenth of its speed.
  [[nodiscard]] std::uint64_t heap_offset(int rank) const noexcept {
    return area_bytes + static_cast<std::uint64_t>(rank) * (heap_bytes + 17 * os::page_bytes());
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return heap_offset(ranks); }

  friend bool operator==(const shm_layout&, const shm_layout&) = default;

 private:
  template <class Resource>
  static std::uint64_t limit_of(Resource resource) noexcept {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ~std::uint64_t{0};
    return limit.rlim_cur;
  }
  static std::uint64_t whole_pages(std::uint64_t bytes) noexcept {
    const std::uint64_t page = os::page_bytes();
    return (bytes + page - 1) / page * page;
  }
};

}  // namespace tutti
