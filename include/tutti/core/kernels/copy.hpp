#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/core/kernels/fold.hpp>

namespace tutti {

namespace detail {

inline void copy_streaming(void* to, const void* from, std::size_t bytes, instruction_set set) noexcept {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const std::size_t head = elements_before_line<std::byte>(to, bytes), lines = (bytes - head) / 64;
  if (!x86_64 || lines == 0) {
    if (bytes != 0) std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(out, in, head);
  if (set >= instruction_set::avx512)
    avx512::copy_lines(out + head, in + head, lines);
  else if (set == instruction_set::avx2)
    avx2::copy_lines(out + head, in + head, lines);
  else
    baseline::copy_lines(out + head, in + head, lines);
  const std::size_t done = head + lines * 64;
  std::memcpy(out + done, in + done, bytes - done);
  stream_fence();
}

}  // namespace detail

/// memcpy past the caches, in whole lines, for what is larger than these and not read soon: it spares the reading of
/// the lines that are overwritten. Visible to other ranks by the next release store. No overlap.
inline void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept {
  detail::copy_streaming(to, from, bytes, best_instruction_set());
}

}  // namespace tutti
