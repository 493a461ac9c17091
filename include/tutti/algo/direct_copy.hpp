#pragma once
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

}  // namespace tutti::algo::detail
