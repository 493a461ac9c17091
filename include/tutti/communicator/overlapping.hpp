#pragma once
#include <cstddef>
#include <span>

#include <tutti/communicator/caller.hpp>
#include <tutti/config.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// Two blocks that have elements in common; the same one twice where there are none.
struct block_pair {
  std::size_t first = 0, second = 0;
};

/// Returns two blocks of one buffer that overlap, if there are any. All end within the range of std::size_t. Linear in
/// the number of blocks whose offsets ascend, empty ones apart, else n log n. Each thread keeps the memory for that.
TUTTI_DECL block_pair overlapping(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) noexcept;

/// Throws usage_error where buffers of a list, which are written to, share a byte, or are not there.
TUTTI_DECL void check_apart(const caller& who, const buffer_list& list);

}  // namespace tutti::detail

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/communicator/overlapping.hpp>
#endif
