#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <tutti/core/reduction.hpp>
#include <tutti/core/reduction/folder.hpp>

namespace tutti {

/// A reduction of elements of unknown type, given at run time as a function of bytes: for language bindings and for
/// libraries that bring such functions. Must be associative and commutative. If it throws, the
/// world is aborted: all ranks throw errc::aborted with a message that names the rank on which a reduction threw, which
/// itself adds the text of the exception; a rank that has its result already throws it from its next call.
struct raw_reduction {
  /// The size of the largest element, which fits the staging memory of every machine.
  static constexpr std::size_t most_bytes = 4096;

  /// Computes inout[i] = inout[i] op in[i] for bytes / element elements. The two do not overlap; `element` is the size
  /// of one. Buffers may be cut between any two elements: if the buffers are aligned to 64 bytes, these pointers are
  /// aligned to the largest power of two that divides `element`, at most 64.
  void (*fold)(const void* in, void* inout, std::size_t element, std::size_t bytes) = nullptr;
  std::size_t element_bytes = 0;
  /// Computes the same as `fold`, which it replaces, with a pointer of its author's, which must be valid until the
  /// operation has ended.
  void (*fold_for)(void* user, const void* in, void* inout, std::size_t element, std::size_t bytes) = nullptr;
  void* user = nullptr;

  /// Returns true if it can be called.
  [[nodiscard]] constexpr bool valid() const noexcept {
    return (fold != nullptr) != (fold_for != nullptr) && element_bytes != 0 && element_bytes <= most_bytes;
  }
};

namespace detail {

/// The callable part of a raw_reduction, as a reduction stores it.
struct raw_plain {
  decltype(raw_reduction::fold) fold;
  std::size_t element_bytes;

  explicit raw_plain(const raw_reduction& r) noexcept : fold(r.fold), element_bytes(r.element_bytes) {}
  void operator()(const void* in, void* inout, std::size_t bytes) const { fold(in, inout, element_bytes, bytes); }
};
struct raw_for_user {
  decltype(raw_reduction::fold_for) fold;
  std::size_t element_bytes;
  void* user;

  explicit raw_for_user(const raw_reduction& r) noexcept
      : fold(r.fold_for), element_bytes(r.element_bytes), user(r.user) {}
  void operator()(const void* in, void* inout, std::size_t bytes) const { fold(user, in, inout, element_bytes, bytes); }
};

template <class Raw>
struct raw_folder {
  static const Raw& raw_of(const void* context) noexcept { return *static_cast<const Raw*>(context); }

  static void fold(const void* right, void* inout, std::size_t count, const void* context) {
    const Raw& with = raw_of(context);
    if (count != 0) with(right, inout, count * with.element_bytes);
  }

  // Folds into a local buffer, a few elements at a time, because an output may be any of the inputs.
  static void fold_all_to(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count, stores,
                          const void* context) {
    const Raw& with = raw_of(context);
    alignas(64) std::array<std::byte, raw_reduction::most_bytes> sum;
    const std::size_t total = count * with.element_bytes;
    const std::size_t most = sum.size() / with.element_bytes * with.element_bytes;
    for (std::size_t at = 0; at < total; at += most) {
      const std::size_t bytes = (std::min)(most, total - at);
      std::memcpy(sum.data(), static_cast<const std::byte*>(inputs[0]) + at, bytes);
      for (int r = 1; r < n; ++r) with(static_cast<const std::byte*>(inputs[r]) + at, sum.data(), bytes);
      for (int o = 0; o < m; ++o) std::memcpy(static_cast<std::byte*>(outputs[o]) + at, sum.data(), bytes);
    }
  }
};

template <class Raw>
void erase_raw(const Raw& with, reduction& r) noexcept {
  static_assert(sizeof(Raw) <= reduction::context_bytes);
  using folded = of_user<raw_folder<Raw>>;
  r.fold = &folded::fold;
  r.fold_all_to = &folded::fold_all_to;
  std::memcpy(r.context.data(), &with, sizeof(with));
}

}  // namespace detail

/// Erases the type of `with` into a new `r`. `with` must be valid, and the buffers must have its element size.
inline void erase_type(const raw_reduction& with, reduction& r) noexcept {
  r.kind = reduction_kind::raw;
  if (with.fold_for)
    detail::erase_raw(detail::raw_for_user{with}, r);
  else
    detail::erase_raw(detail::raw_plain{with}, r);
}
inline reduction erase_type(const raw_reduction& with) noexcept {
  reduction r;
  erase_type(with, r);
  return r;
}

}  // namespace tutti
