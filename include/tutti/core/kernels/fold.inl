// Kernels, compiled once for each instruction set, whose namespace defines `width`, the bytes of its registers, and
// clear_upper_halves(): see fold.hpp. All instruction sets give the same bits as fold_scalars; only the choice among
// several NaNs is left to the compiler.

template <class C>
using packed = typename vectors<C, width>::type;

/// Returns `x` in all lanes. It is a function because nvcc's front end fails on vector constants, and on vectors of
/// dependent types in a conditional expression.
[[gnu::always_inline]] inline packed<std::uint32_t> splat(std::uint32_t x) noexcept {
  return packed<std::uint32_t>{} + x;
}

// Narrow floats, in the low bits of words, to floats and back.

template <class T>
[[gnu::always_inline]] inline packed<float> decode(packed<std::uint32_t> bits) noexcept {
  using words = packed<std::uint32_t>;
  if constexpr (std::same_as<T, bfloat16>) {
    return __builtin_bit_cast(packed<float>, bits << 16);
  } else {  // small_float::decode
    using F = typename T::format;
    constexpr auto special = static_cast<std::int32_t>(F::special), first_normal = 1 << (23 - F::shift);
    const words sign = (bits & F::sign) << F::to_sign_of_float, rest = bits & (F::sign - 1);
    const auto order = __builtin_bit_cast(packed<std::int32_t>, rest);  // SSE2 compares these only
    const words subnormal = __builtin_bit_cast(words, __builtin_convertvector(order, packed<float>) * F::smallest);
    const words lifted = splat(F::lift), rebiased = splat(F::rebias);
    const words normal = (rest << F::shift) + (order >= special ? lifted : rebiased);
    return __builtin_bit_cast(packed<float>, sign | (order < first_normal ? subnormal : normal));
  }
}

template <class T>
[[gnu::always_inline]] inline packed<std::uint32_t> encode(packed<float> value) noexcept {
  using words = packed<std::uint32_t>;
  const words all = __builtin_bit_cast(words, value), magnitude = all & 0x7fffffffu;
  const auto order = __builtin_bit_cast(packed<std::int32_t>, magnitude);
  if constexpr (std::same_as<T, bfloat16>) {
    const words rounded = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16, nan = (all >> 16) | 0x40u;
    return order > 0x7f800000 ? nan : rounded;
  } else {  // small_float::encode
    using F = typename T::format;
    constexpr auto overflow = static_cast<std::int32_t>(F::overflow), least = static_cast<std::int32_t>(F::min_normal);
    constexpr std::uint32_t below_half = (1u << (F::shift - 1)) - 1;
    const words nan = ((magnitude >> F::shift) & F::payload) | F::quiet_nan, special = splat(F::special);
    const auto shifted = __builtin_bit_cast(packed<float>, magnitude) + __builtin_bit_cast(float, F::magic);
    const words subnormal = __builtin_bit_cast(words, shifted) - F::magic;
    const words normal = (magnitude - F::rebias + below_half + ((magnitude >> F::shift) & 1u)) >> F::shift;
    const words finite = order < least ? subnormal : normal;
    const words rest = order > 0x7f800000 ? nan : order >= overflow ? special : finite;
    return (all & 0x80000000u) >> F::to_sign_of_float | rest;
  }
}

/// Elements of 16 bits, the even and the odd ones converted separately: both halves of a word need no shuffle.
struct pairs {
  packed<float> even, odd;
};
template <class T>
inline constexpr bool in_pairs = std::same_as<T, bfloat16> || (std::same_as<T, float16> && width == 16);

/// The number of elements that are computed at a time.
template <class T>
inline constexpr std::size_t lanes = in_pairs<T> ? width / sizeof(T) : width / sizeof(compute_t<T>);

/// Loads `lanes<T>` elements from any address, in the type in which they are computed.
template <class T>
[[gnu::always_inline]] inline auto load(const std::byte* p) noexcept {
  if constexpr (sizeof(T) == sizeof(compute_t<T>)) {
    const packed<T> value = *reinterpret_cast<const typename vectors<T, width>::loose*>(p);
    return value;
  } else if constexpr (in_pairs<T>) {
    const packed<std::uint32_t> both = *reinterpret_cast<const typename vectors<std::uint32_t, width>::loose*>(p);
    if constexpr (std::same_as<T, bfloat16>)
      return pairs{decode<T>(both), __builtin_bit_cast(packed<float>, both & 0xffff0000u)};
    else
      return pairs{decode<T>(both & 0xffffu), decode<T>(both >> 16)};
  } else {
    using bits = vectors<decltype(T::bits), lanes<T> * sizeof(T)>;
    const typename bits::type stored = *reinterpret_cast<const typename bits::loose*>(p);
    if constexpr (std::same_as<T, float16>) {
      packed<compute_t<T>> value;
      TUTTI_VCVTPH2PS(value, stored);
      return value;
    } else {
      return decode<T>(__builtin_convertvector(stored, packed<std::uint32_t>));
    }
  }
}

/// Converts to bfloat16 by the processor's instruction. That instruction flushes subnormals to zero, so registers that
/// hold one are converted by integer instructions. Its result has all even elements, then all odd ones, which are
/// interleaved here.
template <class Pairs>
[[gnu::always_inline]] inline packed<std::uint32_t> encode_by_processor(const Pairs& value) noexcept {
  bool any = true;
  TUTTI_ANY_SUBNORMAL(any, value.even, value.odd)
  if (any) [[unlikely]]
    return encode<bfloat16>(value.even) | encode<bfloat16>(value.odd) << 16;
  typename vectors<std::uint16_t, sizeof(Pairs) / 2>::type separate{};
  TUTTI_VCVTNE2PS2BF16(separate, value.even, value.odd);
  return __builtin_bit_cast(
      packed<std::uint32_t>,
      __builtin_shufflevector(separate, separate, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25,
                              10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

/// Converts elements to the type in which they are stored.
template <class T, rounding by, class V>
[[gnu::always_inline]] inline auto narrow(const V& value) noexcept {
  if constexpr (sizeof(T) == sizeof(compute_t<T>)) {
    return value;
  } else if constexpr (by == rounding::by_processor) {
    return encode_by_processor(value);
  } else if constexpr (in_pairs<T>) {
    return encode<T>(value.even) | encode<T>(value.odd) << 16;
  } else {
    using bits = typename vectors<decltype(T::bits), lanes<T> * sizeof(T)>::type;
    if constexpr (std::same_as<T, float16>) {
      bits stored;
      TUTTI_VCVTPS2PH(stored, value);
      return stored;
    } else {
      return __builtin_convertvector(encode<T>(value), bits);
    }
  }
}

template <class V>
[[gnu::always_inline]] inline void put(std::byte* p, V value) noexcept {
  using C = std::remove_cvref_t<decltype(value[0])>;
  *reinterpret_cast<typename vectors<C, sizeof(V)>::loose*>(p) = value;
}

/// Stores past the caches. `p` must be aligned to the register.
template <class V>
[[gnu::always_inline]] inline void put_past_caches(std::byte* p, V value) noexcept {
  if constexpr (!x86_64 || sizeof(V) < 16)
    put(p, value);
  else if constexpr (width == 16)
    TUTTI_MOVNTPS(*reinterpret_cast<V*>(p), value);
  else
    TUTTI_VMOVNTPS(*reinterpret_cast<V*>(p), value);
}

template <class Op, class V>
[[gnu::always_inline]] inline V apply(V a, V b) noexcept {
  if constexpr (std::same_as<Op, sum_op> || std::same_as<Op, mean_op>)
    return a + b;
  else if constexpr (std::same_as<Op, prod_op>)
    return a * b;
  else if constexpr (std::same_as<Op, min_op>)
    return ((a < b) | (a != a)) ? a : b;
  else if constexpr (std::same_as<Op, max_op>)
    return ((b < a) | (a != a)) ? a : b;
  else if constexpr (std::same_as<Op, band_op>)
    return a & b;
  else if constexpr (std::same_as<Op, bor_op>)
    return a | b;
  else
    return a ^ b;
}
template <class Op>
[[gnu::always_inline]] inline pairs apply(pairs a, pairs b) noexcept {
  return {apply<Op>(a.even, b.even), apply<Op>(a.odd, b.odd)};
}

template <class V, class C>
[[gnu::always_inline]] inline V divide(V a, C n) noexcept {
  return a / n;
}
template <class C>
[[gnu::always_inline]] inline pairs divide(pairs a, C n) noexcept {
  return {a.even / n, a.odd / n};
}
template <class V, class C>
[[gnu::always_inline]] inline V multiply(V a, C factor) noexcept {
  return a * factor;
}
template <class C>
[[gnu::always_inline]] inline pairs multiply(pairs a, C factor) noexcept {
  return {a.even * factor, a.odd * factor};
}

/// Folds four registers at byte `at` of all inputs and stores them to all outputs. The registers are separate variables
/// because an array of them would stay in memory under -O1.
template <class T, class Op, rounding by>
[[gnu::always_inline]] inline void fold_four(const std::byte* const* in, int n, std::byte* const* out, int m,
                                             std::size_t at, stores how, compute_t<T> divisor) noexcept {
  constexpr std::size_t next = lanes<T> * sizeof(T);
  const std::byte* p = in[0] + at;
  auto a = load<T>(p), b = load<T>(p + next), c = load<T>(p + 2 * next), d = load<T>(p + 3 * next);
  for (int r = 1; r < n; ++r) {
    p = in[r] + at;
    a = apply<Op>(a, load<T>(p));
    b = apply<Op>(b, load<T>(p + next));
    c = apply<Op>(c, load<T>(p + 2 * next));
    d = apply<Op>(d, load<T>(p + 3 * next));
  }
  if constexpr (std::same_as<Op, mean_op>)
    a = divide(a, divisor), b = divide(b, divisor), c = divide(c, divisor), d = divide(d, divisor);
  const auto w = narrow<T, by>(a), x = narrow<T, by>(b), y = narrow<T, by>(c), z = narrow<T, by>(d);
  for (int o = 0; o < m; ++o) {
    std::byte* to = out[o] + at;
    if (how == stores::streaming && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
      put_past_caches(to, w), put_past_caches(to + next, x);
      put_past_caches(to + 2 * next, y), put_past_caches(to + 3 * next, z);
    } else {
      put(to, w), put(to + next, x), put(to + 2 * next, y), put(to + 3 * next, z);
    }
  }
}

template <class T, class Op, rounding by>
[[gnu::always_inline]] inline void fold_one(const std::byte* const* in, int n, std::byte* const* out, int m,
                                            std::size_t at, compute_t<T> divisor) noexcept {
  auto a = load<T>(in[0] + at);
  for (int r = 1; r < n; ++r) a = apply<Op>(a, load<T>(in[r] + at));
  if constexpr (std::same_as<Op, mean_op>) a = divide(a, divisor);
  for (int o = 0; o < m; ++o) put(out[o] + at, narrow<T, by>(a));
}

/// Prefetches bytes [from, to) of all outputs for writing; does nothing if `to` is past `end`. Lines that other cores
/// hold are then transferred once, exclusively, instead of first for reading.
[[gnu::always_inline]] inline void claim(std::byte* const* out, int m, std::size_t from, std::size_t to,
                                         std::size_t end) noexcept {
  if (to > end) return;
  for (int o = 0; o < m; ++o) tutti::detail::prefetch_to_write(out[o] + from, to - from);
}

/// Folds as fold(), from element i on in steps of four registers, and prefetches the lines of all outputs but the first
/// `own` for writing, `ahead` bytes in advance. Returns the first element that is left.
template <class T, class Op, rounding by>
[[gnu::always_inline]] inline std::size_t fold_claiming(const std::byte* const* in, int n, std::byte* const* out, int m,
                                                        int own, std::size_t ahead, std::size_t i, std::size_t count,
                                                        compute_t<T> divisor) noexcept {
  constexpr std::size_t step = 4 * lanes<T> * sizeof(T);
  const std::size_t end = count * sizeof(T);
  claim(out + own, m - own, 0, ahead < end ? ahead : end, end);
  for (; count - i >= 4 * lanes<T>; i += 4 * lanes<T>) {
    const std::size_t at = i * sizeof(T) + ahead;
    claim(out + own, m - own, at, at + step, end);
    fold_four<T, Op, by>(in, n, out, m, i * sizeof(T), stores::ordinary, divisor);
  }
  return i;
}

/// Folds as fold_claiming, with two inputs and two outputs whose addresses stay in registers: between distant cores, a
/// third more lines are then in flight.
template <class T, class Op, rounding by>
[[gnu::always_inline]] inline std::size_t fold_pair(const std::byte* const* in, std::byte* const* out, int own,
                                                    std::size_t i, std::size_t count, compute_t<T> divisor) noexcept {
  const std::byte* const pair[] = {in[0], in[1]};
  std::byte* const to[] = {out[0], out[1]};
  return fold_claiming<T, Op, by>(pair, 2, to, 2, own, 4096, i, count, divisor);
}

/// Computes element i of all outputs as in[0][i] op in[1][i] op …; an output may be one of the inputs. Each element is
/// read once, and before it is written.
template <class T, class Op, rounding by = rounding::in_words>
void fold(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count, stores how,
          double mean_by) noexcept {
  if constexpr (by == rounding::by_processor)  // it could not tell subnormals from zero
    if (subnormals_are_zero()) return fold<T, Op>(inputs, n, outputs, m, count, how, mean_by);
  const auto divisor = static_cast<compute_t<T>>(mean_by);
  const auto* const* in = reinterpret_cast<const std::byte* const*>(inputs);
  auto* const* out = reinterpret_cast<std::byte* const*>(outputs);
  std::size_t i = 0;
  if (how == stores::streaming) {
    i = elements_before_line<T>(outputs[0], count);
    fold_scalars<T, Op>(inputs, n, outputs, m, 0, i, mean_by);
  }
  if (n == 2 && m == 1 && how != stores::streaming) {  // the case of rings and pairwise exchanges
    const std::byte* const pair[] = {in[0], in[1]};
    std::byte* const to[] = {out[0]};
    for (; count - i >= 4 * lanes<T>; i += 4 * lanes<T>)
      fold_four<T, Op, by>(pair, 2, to, 1, i * sizeof(T), stores::ordinary, divisor);
  }
  if (m > 1 && how != stores::streaming) {
    const int own = how == stores::unclaimed ? m : how == stores::own_first ? 1 : 0;
    if (n == 2 && m == 2)
      i = own == 2   ? fold_pair<T, Op, by>(in, out, 2, i, count, divisor)
          : own == 1 ? fold_pair<T, Op, by>(in, out, 1, i, count, divisor)
                     : fold_pair<T, Op, by>(in, out, 0, i, count, divisor);
    else  // 32 lines: about 0.1 us of folding, which is one line's latency
      i = fold_claiming<T, Op, by>(in, n, out, m, own, 2048, i, count, divisor);
  }
  for (; count - i >= 4 * lanes<T>; i += 4 * lanes<T>) fold_four<T, Op, by>(in, n, out, m, i * sizeof(T), how, divisor);
  for (; count - i >= lanes<T>; i += lanes<T>) fold_one<T, Op, by>(in, n, out, m, i * sizeof(T), divisor);
  clear_upper_halves();
  fold_scalars<T, Op>(inputs, n, outputs, m, i, count, mean_by);
  clear_upper_halves();  // if inlined here, it may use wide registers, too
  if (how == stores::streaming) stream_fence();
}

/// Computes out[i] = T(factor * in[i]), the product in float (in double for f64) if T is narrower; `out` may be `in`.
template <class T>
void scale(const void* in, void* out, std::size_t count, compute_t<T> factor) noexcept {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  std::size_t i = 0;
  for (; count - i >= lanes<T>; i += lanes<T>) {
    put(to + i * sizeof(T), narrow<T, rounding::in_words>(multiply(load<T>(from + i * sizeof(T)), factor)));
  }
  clear_upper_halves();
  scale_scalars<T>(in, out, i, count, factor);
  clear_upper_halves();
}

/// Copies from the front, a few registers at a time: `to` may lie before `from`, but not inside its range.
inline void copy_forward(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  using loose = typename vectors<std::uint8_t, width>::loose;
  constexpr std::size_t registers = 4, whole = registers * width;
  for (; bytes >= whole; bytes -= whole, to += whole, from += whole) {
    typename vectors<std::uint8_t, width>::type v[registers];
    for (std::size_t k = 0; k < registers; ++k) v[k] = *reinterpret_cast<const loose*>(from + k * width);
    for (std::size_t k = 0; k < registers; ++k) *reinterpret_cast<loose*>(to + k * width) = v[k];
  }
  clear_upper_halves();
  std::memmove(to, from, bytes);
}

/// Copies whole lines to an aligned address, past the caches.
inline void copy_lines(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  using bytes = typename vectors<std::uint8_t, width>::type;
  using loose = typename vectors<std::uint8_t, width>::loose;
  for (; lines != 0; --lines, to += 64, from += 64) {
    bytes v[64 / width];
    for (std::size_t k = 0; k < 64 / width; ++k) v[k] = *reinterpret_cast<const loose*>(from + k * width);
    for (std::size_t k = 0; k < 64 / width; ++k) put_past_caches(to + k * width, v[k]);
  }
  clear_upper_halves();
}
