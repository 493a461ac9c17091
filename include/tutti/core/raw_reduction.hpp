#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <tutti/core/folder.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti {

/// A reducer over elements that only its author knows, given at run time: for bindings, and for libraries that bring
/// reducers as functions of bytes. Must be associative and commutative. An exception that it throws is lost and ends
/// the world: errc::aborted on all ranks, where one has its result already in the next call, in words that say that a
/// reduction threw, and on which rank.
struct raw_reduction {
  /// The largest element: what fits the staging memory of every machine.
  static constexpr std::size_t most_bytes = 4096;

  /// inout[i] = inout[i] op in[i] for the bytes / element elements of both, which do not overlap. `element` is the size
  /// of one. Buffers are cut between any two elements: where they are aligned to 64, memory here is to the largest
  /// power of two that divides `element`, at most 64.
  void (*fold)(const void* in, void* inout, std::size_t element, std::size_t bytes) = nullptr;
  std::size_t element_bytes = 0;

  /// Can be called.
  [[nodiscard]] constexpr bool valid() const noexcept {
    return fold != nullptr && element_bytes != 0 && element_bytes <= most_bytes;
  }
};

namespace detail {

inline const raw_reduction& raw_of(const void* context) noexcept { return *static_cast<const raw_reduction*>(context); }

struct raw_folder {
  static void fold(const void* right, void* inout, std::size_t count, const void* context) {
    const raw_reduction& with = raw_of(context);
    if (count != 0) with.fold(right, inout, with.element_bytes, count * with.element_bytes);
  }

  // Through memory of its own, a few elements at a time, as an output may be any of the inputs.
  static void fold_all_to(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count, stores,
                          const void* context) {
    const raw_reduction& with = raw_of(context);
    alignas(64) std::array<std::byte, raw_reduction::most_bytes> sum;
    const std::size_t total = count * with.element_bytes;
    const std::size_t most = sum.size() / with.element_bytes * with.element_bytes;
    for (std::size_t at = 0; at < total; at += most) {
      const std::size_t bytes = (std::min)(most, total - at);
      std::memcpy(sum.data(), static_cast<const std::byte*>(inputs[0]) + at, bytes);
      for (int r = 1; r < n; ++r)
        with.fold(static_cast<const std::byte*>(inputs[r]) + at, sum.data(), with.element_bytes, bytes);
      for (int o = 0; o < m; ++o) std::memcpy(static_cast<std::byte*>(outputs[o]) + at, sum.data(), bytes);
    }
  }
};

}  // namespace detail

/// `with` is valid; the buffers have its element size.
inline void erase_type(const raw_reduction& with, reduction& r) noexcept {
  static_assert(sizeof(raw_reduction) <= reduction::context_bytes);
  r.kind = reduction_kind::raw;
  using folded = detail::of_user<detail::raw_folder>;
  r.fold = &folded::fold;
  r.fold_all_to = &folded::fold_all_to;
  std::memcpy(r.context.data(), &with, sizeof(with));
}
inline reduction erase_type(const raw_reduction& with) noexcept {
  reduction r;
  erase_type(with, r);
  return r;
}

}  // namespace tutti
