#pragma once
#include <cstddef>
#include <span>

#include <tutti/communicator/call_context.hpp>
#include <tutti/config.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// Two blocks that have elements in common; the same one twice if no blocks have.
struct block_pair {
  std::size_t first = 0, second = 0;
};

/// Returns two blocks of one buffer that overlap, if there are any. All blocks must end within the range of
/// std::size_t. Takes linear time if the offsets of non-empty blocks ascend, else n log n and memory that each thread
/// keeps.
TUTTI_DECL block_pair overlapping(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) noexcept;

/// Throws usage_error if two buffers of a list, which is written, share a byte, or if one with elements is at null.
TUTTI_DECL void check_disjoint(const call_context& who, const buffer_list& list);

}  // namespace tutti::detail

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/communicator/overlapping.hpp>
#endif
