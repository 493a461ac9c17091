#pragma once
#include <algorithm>
#include <cstddef>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/core/kernels/copy.hpp>

namespace tutti::algo::detail {

/// Bytes of a chunk: while the others copy one chunk out of a slot, its rank stages the next one.
inline constexpr std::size_t copy_chunk = shm_group::half_bytes;

inline constexpr std::size_t beyond_caches = std::size_t{24} << 20;

/// Copies a chunk of a message to the user's buffer, by streaming stores if the message is too long to stay in the
/// caches.
inline void copy_out(void* to, const void* from, std::size_t bytes, std::size_t message) noexcept {
  if (message >= beyond_caches)
    copy_streaming(to, from, bytes);
  else
    copy_bytes(to, from, bytes);
}

/// Copies a block of a message from another rank's memory, which this rank maps. Returns false if some rank failed
/// meanwhile.
inline bool copy_mapped(shm_group& shm, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t message) {
  const shm_group::access_epoch access{shm};
  for (std::size_t done = 0; done < bytes; done += shm_group::access_bytes) {
    if (!access.permitted()) return false;
    copy_out(to + done, from + done, chunk_size(bytes, done, shm_group::access_bytes), message);
  }
  return true;
}

/// Returns the bytes that a rank copies of one rank's block before it goes on to the next rank's. If the caches do not
/// hold the message, near ranks copy the same part of each block at about the same time, each beginning with its own:
/// the part is read from memory once, and by the others from its owner's cache. Far ranks, which are those that stage
/// by streaming stores, read memory faster than that. Ranks that have not chosen a staging method count as near.
inline std::size_t turn_bytes(const shm_group& shm, std::size_t longest, std::size_t message) noexcept {
  return message < beyond_caches || shm.staging_method().how == stores::streaming ? std::max<std::size_t>(longest, 1)
                                                                                  : copy_chunk;
}

}  // namespace tutti::algo::detail
