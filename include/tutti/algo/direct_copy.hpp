#pragma once
#include <algorithm>
#include <cstddef>

#include <tutti/algo/block.hpp>
#include <tutti/algo/board.hpp>
#include <tutti/core/kernels/copy.hpp>

namespace tutti::algo::detail {

/// What travels in one step from a rank to the others: while they copy one piece out, it stages the next.
inline constexpr std::size_t copy_piece = board::half_bytes;

inline constexpr std::size_t beyond_caches = std::size_t{24} << 20;

/// Copies a piece of a message to the user's buffer; past the caches where the message would not stay in them anyway.
inline void copy_out(void* to, const void* from, std::size_t bytes, std::size_t message) noexcept {
  if (message >= beyond_caches)
    copy_streaming(to, from, bytes);
  else
    copy_bytes(to, from, bytes);
}

/// Copies a block of a message from memory of another rank that this one maps; false if some rank failed meanwhile.
inline bool copy_mapped(board& b, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t message) {
  const board::visit visit{b};
  for (std::size_t done = 0; done < bytes; done += board::visit_bytes) {
    if (!visit.welcome()) return false;
    copy_out(to + done, from + done, piece_of(bytes, done, board::visit_bytes), message);
  }
  return true;
}

/// How much of one block ranks copy from each other's buffers before they go on to the next. Of a message that the
/// caches do not hold, near ranks copy the same part of each block at about the same time, all beginning with their
/// own: it is read from memory once, and by the others from its owner's cache. Far ranks, which are those that stage
/// past the caches, read memory faster. Who never chose how to stage counts as near.
inline std::size_t turn_bytes(const board& b, std::size_t longest, std::size_t message) noexcept {
  return message < beyond_caches || b.way().how == stores::streaming ? std::max<std::size_t>(longest, 1) : copy_piece;
}

}  // namespace tutti::algo::detail
