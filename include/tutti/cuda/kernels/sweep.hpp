#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::cuda::detail {

/// The parts of an array: `head` elements one by one, then aligned vectors, then the rest one by one.
struct partition {
  std::size_t head = 0, vectors = 0;
};

/// Returns the number of elements before the first aligned vector of `W`.
template <std::size_t W, class T>
TUTTI_HOST_DEVICE std::size_t before_vector(const T* p) noexcept {
  return (W - reinterpret_cast<std::uintptr_t>(p) / sizeof(T) % W) % W;
}

/// Cuts arrays that are traversed together, each aligned for its elements. Uses no vectors if the aligned vectors of
/// the arrays do not begin at the same element.
template <std::size_t W, class First, class... Others>
TUTTI_HOST_DEVICE partition cut(std::size_t count, const First* first, const Others*... others) noexcept {
  const std::size_t head = before_vector<W>(first);
  const bool together = ((before_vector<W>(others) == head) && ...);
  if (!together || count < head) return {count, 0};
  return {head, (count - head) / W};
}

/// Processes thread `me`'s elements of an array, which is divided among `threads`. Calls `f.load<W>(i)`, which loads
/// elements [i, i + W) into registers, and `f.store<W>(i, registers)`. Issues `unroll` loads before the first store,
/// which keeps the memory busy, as the compiler does not move loads before stores.
template <std::size_t W, std::size_t unroll, class F>
TUTTI_HOST_DEVICE void sweep(const F& f, std::size_t count, partition p, std::size_t me, std::size_t threads) noexcept {
  std::size_t k = me;
  for (; k + (unroll - 1) * threads < p.vectors; k += unroll * threads) {
    decltype(f.template load<W>(k)) registers[unroll];
    for (std::size_t u = 0; u < unroll; ++u) registers[u] = f.template load<W>(p.head + (k + u * threads) * W);
    for (std::size_t u = 0; u < unroll; ++u) f.template store<W>(p.head + (k + u * threads) * W, registers[u]);
  }
  for (; k < p.vectors; k += threads) {
    const std::size_t i = p.head + k * W;
    f.template store<W>(i, f.template load<W>(i));
  }
  const std::size_t body = p.vectors * W;
  for (std::size_t s = me; s < count - body; s += threads) {
    const std::size_t i = s < p.head ? s : s + body;
    f.template store<1>(i, f.template load<1>(i));
  }
}

}  // namespace tutti::cuda::detail
