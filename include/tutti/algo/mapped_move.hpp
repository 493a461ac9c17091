#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/lent.hpp>

namespace tutti::algo::detail {

/// Whether a root that needs not wait otherwise should do so to spare copies: where ranks share cores, waiting costs
/// some 15 us.
template <mapped_transport T>
bool root_may_wait(const meeting<T>& m, std::size_t bytes) noexcept {
  return bytes >= board::slot_bytes || m.link().ranks_per_core() <= 1;
}

/// Which way blocks go between the root's buffer and the others'.
enum class flow { from_root, to_root };

/// A part of the root's buffer.
struct stretch {
  std::size_t offset, bytes;
};

/// What the root says beside its note when it has nothing to copy for itself, and so takes a share of the others' work.
inline constexpr std::uint64_t takes_share = 0;

/// What the root copies of a rank's block, at its end: so much that all are busy alike. Whole lines of the cache.
inline std::size_t share_of_root(std::size_t bytes, int ranks) noexcept {
  return bytes / static_cast<std::size_t>(ranks) / tutti::detail::cache_line * tutti::detail::cache_line;
}

/// Moves blocks between the root's buffer, which the others map or have been lent, and theirs, staging nothing.
/// Everyone has noted with `step` where its buffer is, as `in`, and has seen the root's note. A rank moves its own
/// block; where its buffer is mapped, too, the root moves the end of it meanwhile. `own` is this rank's buffer,
/// `block_of(r)` where rank r's block lies in the root's: asked for all by the root, by others for themselves. Two
/// meetings in all with that of `step`.
template <mapped_transport T, class BlockOf>
routine move_mapped(lane<T> lane, meeting<T> m, board& b, int root, std::uint64_t step, flow way, std::byte* own,
                    BlockOf block_of) {
  const bool gives = (way == flow::from_root) == (m.rank() == root);
  const auto move = [&](std::byte* mine, far_buffer theirs, std::size_t bytes, std::size_t message) {
    return gives ? copy_to(b, theirs, mine, bytes, message) : copy_from(b, mine, theirs, bytes, message);
  };
  int failed = 0;
  const bool shares = b.note_of(root, step).out == takes_share;
  if (m.rank() == root) {
    co_await m.everyone(step);
    for (int r = 0; r < m.size() && failed == 0; ++r) {
      const std::uint64_t where = b.note_of(r, step).in;
      if (r == root || !shares || where == board::nowhere) continue;
      const stretch block = block_of(r);
      if (block.bytes == 0) continue;
      const far_buffer theirs = find(m, r, where, block.bytes);
      if (!theirs) co_await lane.refuse({errc::protocol, 0, lane.members().world_rank(r), 0});
      const std::size_t share = share_of_root(block.bytes, m.size()), from = block.bytes - share;
      failed = move(own + block.offset + from, theirs + from, share, block.bytes);
    }
  } else {
    const stretch block = block_of(m.rank());
    if (block.bytes != 0) {
      const far_buffer theirs = find(m, root, b.note_of(root, step).in + block.offset, block.bytes);
      if (!theirs) co_await lane.refuse({errc::protocol, 0, lane.members().world_rank(root), 0});
      const bool shared = shares && b.note_of(m.rank(), step).in != board::nowhere;
      const std::size_t share = shared ? share_of_root(block.bytes, m.size()) : 0;
      failed = move(own, theirs, block.bytes - share, block.bytes);
    }
  }
  if (failed != 0) co_await give_up(m, failed);
  co_await m.everyone(step);  // nobody posts two steps more than everyone: cells are kept for four
  const std::uint64_t end = m.post();
  if (m.rank() == root)
    co_await m.everyone(end);
  else
    co_await m.only(root, end);
}

}  // namespace tutti::algo::detail
