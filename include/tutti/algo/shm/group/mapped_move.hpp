#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/group/cma.hpp>

namespace tutti::algo::detail {

/// Returns true if the root should wait until readers have copied directly from its buffer, instead of staging. False
/// for short messages where ranks share cores: a wait costs about 15 us there.
template <mapped_transport T>
bool root_may_wait(const shm_call<T>& call, std::size_t bytes) noexcept {
  return bytes >= shm_group::slot_bytes || call.link().ranks_per_core() <= 1;
}

/// Direction of the blocks between the root's buffer and the others'.
enum class flow { from_root, to_root };

/// Range of the root's buffer.
struct byte_range {
  std::size_t offset, bytes;
};

/// Value of a root's `buffer_descriptor::out` that says: the root has no block of its own to copy, and takes a share of
/// the others'.
inline constexpr std::uint64_t takes_share = 0;

/// Returns the bytes at the end of a rank's block that the root copies, in whole cache lines, so that all ranks copy
/// about equally much.
inline std::size_t share_of_root(std::size_t bytes, int ranks) noexcept {
  return bytes / static_cast<std::size_t>(ranks) / tutti::detail::cache_line * tutti::detail::cache_line;
}

/// Moves blocks between the root's buffer, which the others can access, and theirs; nothing is staged. Every rank must
/// have described its buffer with `step`, as `buffer_descriptor::in`, and must have seen the root's descriptor. A rank
/// moves its own block; the root moves the end of it meanwhile, if it can access that rank's buffer. `own` is this
/// rank's buffer; `block_of(r)` returns the range of rank r's block in the root's buffer, and is called for all ranks
/// by the root, by others for themselves. Two rounds in all, with that of `step`.
template <mapped_transport T, class BlockOf>
routine move_mapped(group_link<T> link, shm_call<T> call, shm_group& shm, int root, std::uint64_t step, flow way,
                    std::byte* own, BlockOf block_of) {
  const bool gives = (way == flow::from_root) == (call.rank() == root);
  const auto move = [&](std::byte* mine, remote_buffer theirs, std::size_t bytes, std::size_t message) {
    return gives ? copy_to(shm, theirs, mine, bytes, message) : copy_from(shm, mine, theirs, bytes, message);
  };
  int failed = 0;
  const bool shares = shm.descriptor_of(root, step).out == takes_share;
  if (call.rank() == root) {
    co_await call.wait_all(step);
    for (int r = 0; r < call.size() && failed == 0; ++r) {
      const std::uint64_t where = shm.descriptor_of(r, step).in;
      if (r == root || !shares || where == shm_group::no_offset) continue;
      const byte_range block = block_of(r);
      if (block.bytes == 0) continue;
      const remote_buffer theirs = find(call, r, where, block.bytes);
      if (!theirs) co_await link.refuse({errc::protocol, 0, link.members().world_rank(r), 0});
      const std::size_t share = share_of_root(block.bytes, call.size()), from = block.bytes - share;
      failed = move(own + block.offset + from, theirs + from, share, block.bytes);
    }
  } else {
    const byte_range block = block_of(call.rank());
    if (block.bytes != 0) {
      const remote_buffer theirs = find(call, root, shm.descriptor_of(root, step).in + block.offset, block.bytes);
      if (!theirs) co_await link.refuse({errc::protocol, 0, link.members().world_rank(root), 0});
      const bool shared = shares && shm.descriptor_of(call.rank(), step).in != shm_group::no_offset;
      const std::size_t share = shared ? share_of_root(block.bytes, call.size()) : 0;
      failed = move(own, theirs, block.bytes - share, block.bytes);
    }
  }
  if (failed != 0) co_await give_up(call, failed);
  co_await call.wait_all(step);  // no rank gets two steps ahead of another: there are four flags
  const std::uint64_t end = call.post();
  if (call.rank() == root)
    co_await call.wait_all(end);
  else
    co_await call.wait_rank(root, end);
}

}  // namespace tutti::algo::detail
