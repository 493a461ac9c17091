#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tutti/core/reduction/ops.hpp>

namespace tutti {

/// The store instructions of a kernel. `streaming` stores whole lines past the caches, for outputs that are larger than
/// the caches and not read soon; if a processor or an address does not allow that, it is the same as `ordinary`. With
/// several outputs, `ordinary` prefetches the lines of all for writing, `own_first` those of all but the first, which
/// is in this core's cache, and `unclaimed` none.
enum class stores : std::uint8_t { ordinary, streaming, own_first, unclaimed };

}  // namespace tutti

namespace tutti::detail {

/// The way in which a float is rounded to a bfloat16: by integer instructions, or by the processor's own one. The bits
/// are the same.
enum class rounding : std::uint8_t { in_words, by_processor };

/// A register of the compiler's vector extensions, and the same type without alignment.
template <class C, std::size_t bytes>
struct vectors {
  typedef C type __attribute__((vector_size(bytes)));
  typedef C loose __attribute__((vector_size(bytes), aligned(1), may_alias));
};

// Sums, products and bit operations do not depend on the sign, which makes fewer kernels to compile. A bool is 0 or 1,
// so its reductions are bit operations.
template <std::size_t bytes, bool has_sign>
using integer_lane = std::conditional_t<
    bytes == 1, std::conditional_t<has_sign, std::int8_t, std::uint8_t>,
    std::conditional_t<bytes == 2, std::conditional_t<has_sign, std::int16_t, std::uint16_t>,
                       std::conditional_t<bytes == 4, std::conditional_t<has_sign, std::int32_t, std::uint32_t>,
                                          std::conditional_t<has_sign, std::int64_t, std::uint64_t>>>>;

template <class Op>
inline constexpr bool is_ordering = std::same_as<Op, min_op> || std::same_as<Op, max_op>;

template <class T, class Op>
struct kernel_of {
  static constexpr bool exists = false;
};
template <class T, class Op>
  requires(named_reduction<Op> && std::is_integral_v<T> && sizeof(T) <= 8 && !std::same_as<T, bool> &&
           !std::same_as<Op, mean_op>)
struct kernel_of<T, Op> {
  static constexpr bool exists = true;
  using lane = integer_lane<sizeof(T), is_ordering<Op> && std::is_signed_v<T>>;
  using op = Op;
};
template <class Op>
  requires named_reduction<Op>
struct kernel_of<bool, Op> {
  static constexpr bool exists = true;
  using lane = std::uint8_t;
  static constexpr bool any = std::same_as<Op, sum_op> || std::same_as<Op, max_op> || std::same_as<Op, bor_op>;
  using op = std::conditional_t<any, bor_op, std::conditional_t<std::same_as<Op, bxor_op>, bxor_op, band_op>>;
};
template <class T, class Op>
  requires(named_reduction<Op> && (std::same_as<T, float> || std::same_as<T, double> || narrow_float<T>))
struct kernel_of<T, Op> {
  static constexpr bool exists = true;
  using lane = T;
  using op = Op;
};
// Complex numbers are added part by part.
template <complex_number T, class Op>
  requires(std::same_as<Op, sum_op> || std::same_as<Op, mean_op>)
struct kernel_of<T, Op> {
  static constexpr bool exists = true;
  using lane = typename T::value_type;
  using op = Op;
};

template <class C>
constexpr C quotient(C total, int n) noexcept {
  if constexpr (complex_number<C>) {
    const auto divisor = static_cast<typename C::value_type>(n);
    return C(total.real() / divisor, total.imag() / divisor);
  } else {
    using D = std::conditional_t<(sizeof(C) < sizeof(int)), int, C>;  // a world size of 256 would be 0 in eight bits
    return static_cast<C>(static_cast<D>(total) / static_cast<D>(n));
  }
}

/// Folds elements [from, to) one by one: the ends that fill no register, and types that no register holds.
template <class T, class Op>
void fold_scalars(const void* const* inputs, int n, void* const* outputs, int m, std::size_t from, std::size_t to,
                  double divisor) noexcept {
  using C = compute_t<T>;
  const auto get = [&](int r, std::size_t i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(inputs[r]) + i * sizeof(T), sizeof(T));
    return static_cast<C>(value);
  };
  for (std::size_t i = from; i < to; ++i) {
    C value = get(0, i);
    for (int r = 1; r < n; ++r) value = Op::apply(value, get(r, i));
    if constexpr (std::same_as<Op, mean_op>) value /= static_cast<C>(divisor);
    const T result = static_cast<T>(value);
    for (int o = 0; o < m; ++o) std::memcpy(static_cast<std::byte*>(outputs[o]) + i * sizeof(T), &result, sizeof(T));
  }
}

template <class T>
void scale_scalars(const void* in, void* out, std::size_t from, std::size_t to, compute_t<T> factor) noexcept {
  for (std::size_t i = from; i < to; ++i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(in) + i * sizeof(T), sizeof(T));
    value = static_cast<T>(static_cast<compute_t<T>>(value) * factor);
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), &value, sizeof(T));
  }
}

/// Returns the number of elements before the next line of 64 bytes, at most `count`; 0 if no element begins at a line.
template <class T>
std::size_t elements_before_line(const void* p, std::size_t count) noexcept {
  const std::size_t gap = (64 - reinterpret_cast<std::uintptr_t>(p) % 64) % 64;
  return gap % sizeof(T) != 0 ? 0 : gap / sizeof(T) < count ? gap / sizeof(T) : count;
}

}  // namespace tutti::detail
