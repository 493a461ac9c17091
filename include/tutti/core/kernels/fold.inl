// Compiled once for each instruction set, whose namespace defines `width`, the bytes of its registers: see fold.hpp.
// Every level gives the same bits as fold_scalars; only which of several NaNs comes out is left to the compiler.

template <class C>
using packed = typename vectors<C, width>::type;

/// A register's worth of elements at any address, in the type that they are computed in.
template <class T>
[[gnu::always_inline]] inline packed<compute_t<T>> load(const std::byte* p) noexcept {
  if constexpr (sizeof(T) == sizeof(compute_t<T>)) {
    return *reinterpret_cast<const typename vectors<T, width>::loose*>(p);
  } else {
    using half = vectors<std::uint16_t, width / 2>;
    using words = packed<std::uint32_t>;
    const typename half::type h = *reinterpret_cast<const typename half::loose*>(p);
    if constexpr (std::same_as<T, bfloat16>) {
      return __builtin_bit_cast(packed<float>, __builtin_convertvector(h, words) << 16);
    } else if constexpr (width > 16) {
      packed<float> value;
      asm("vcvtph2ps %1, %0" : "=v"(value) : "v"(h));
      return value;
    } else {  // as float16 does it
      const words all = __builtin_convertvector(h, words), sign = (all & 0x8000u) << 16, rest = all & 0x7fffu;
      const auto count = __builtin_convertvector(__builtin_bit_cast(packed<std::int32_t>, rest), packed<float>);
      const words small = __builtin_bit_cast(words, count * 0x1p-24f);
      const words large = (rest << 13) + (rest >= 0x7c00u ? words{} + 0x70000000u : words{} + 0x38000000u);
      return __builtin_bit_cast(packed<float>, sign | (rest < 0x400u ? small : large));
    }
  }
}

/// The elements of a register, as they are stored.
template <class T>
[[gnu::always_inline]] inline auto narrow(packed<compute_t<T>> value) noexcept {
  if constexpr (sizeof(T) == sizeof(compute_t<T>)) {
    return value;
  } else {
    using half = typename vectors<std::uint16_t, width / 2>::type;
    using words = packed<std::uint32_t>;
    const words all = __builtin_bit_cast(words, value);
    const auto magnitude = __builtin_bit_cast(packed<std::int32_t>, all & 0x7fffffffu);
    if constexpr (std::same_as<T, bfloat16>) {
      // Not vcvtneps2bf16, which takes subnormals for zero.
      const words rounded = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16, nan = (all >> 16) | 0x40u;
      return __builtin_convertvector(magnitude > 0x7f800000 ? nan : rounded, half);
    } else if constexpr (width > 16) {
      half h;
      asm("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(value));
      return h;
    } else {  // as float16 does it
      const auto m = __builtin_bit_cast(words, magnitude);
      const words nan = ((m >> 13) & 0x1ffu) | 0x7e00u, infinity = words{} + 0x7c00u;
      const words small = __builtin_bit_cast(words, __builtin_bit_cast(packed<float>, magnitude) + 0.5f) - 0x3f000000u;
      const words normal = (m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13;
      const words finite = magnitude < 0x38800000 ? small : normal;
      const words h = magnitude > 0x7f800000 ? nan : magnitude >= 0x477ff000 ? infinity : finite;
      return __builtin_convertvector(((all >> 16) & 0x8000u) | h, half);
    }
  }
}

template <class V>
[[gnu::always_inline]] inline void put(std::byte* p, V value) noexcept {
  using C = std::remove_cvref_t<decltype(value[0])>;
  *reinterpret_cast<typename vectors<C, sizeof(V)>::loose*>(p) = value;
}

/// `p` is aligned to the register.
template <class V>
[[gnu::always_inline]] inline void put_past_caches(std::byte* p, V value) noexcept {
  if constexpr (!x86_64 || sizeof(V) < 16)
    put(p, value);
  else if constexpr (width == 16)
    asm volatile("movntps %1, %0" : "=m"(*reinterpret_cast<V*>(p)) : "x"(value));
  else
    asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<V*>(p)) : "v"(value));
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

/// Four registers at byte `at` of all inputs, folded and stored to all outputs. By name: an array of them would stay in
/// memory under -O1.
template <class T, class Op>
[[gnu::always_inline]] inline void fold_four(const std::byte* const* in, int n, std::byte* const* out, int m,
                                             std::size_t at, stores how) noexcept {
  using C = compute_t<T>;
  constexpr std::size_t next = width / sizeof(C) * sizeof(T);
  const std::byte* p = in[0] + at;
  packed<C> a = load<T>(p), b = load<T>(p + next), c = load<T>(p + 2 * next), d = load<T>(p + 3 * next);
  for (int r = 1; r < n; ++r) {
    p = in[r] + at;
    a = apply<Op>(a, load<T>(p));
    b = apply<Op>(b, load<T>(p + next));
    c = apply<Op>(c, load<T>(p + 2 * next));
    d = apply<Op>(d, load<T>(p + 3 * next));
  }
  if constexpr (std::same_as<Op, mean_op>) {
    const auto divisor = static_cast<C>(n);
    a = a / divisor, b = b / divisor, c = c / divisor, d = d / divisor;
  }
  const auto w = narrow<T>(a), x = narrow<T>(b), y = narrow<T>(c), z = narrow<T>(d);
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

template <class T, class Op>
[[gnu::always_inline]] inline void fold_one(const std::byte* const* in, int n, std::byte* const* out, int m,
                                            std::size_t at) noexcept {
  using C = compute_t<T>;
  packed<C> a = load<T>(in[0] + at);
  for (int r = 1; r < n; ++r) a = apply<Op>(a, load<T>(in[r] + at));
  if constexpr (std::same_as<Op, mean_op>) a = a / static_cast<C>(n);
  for (int o = 0; o < m; ++o) put(out[o] + at, narrow<T>(a));
}

/// Element i of all outputs becomes in[0][i] op in[1][i] op …; an output may be one of the inputs. Each place is read
/// once, and before it is written.
template <class T, class Op>
void fold(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count, stores how) noexcept {
  constexpr std::size_t lanes = width / sizeof(compute_t<T>);
  const auto* const* in = reinterpret_cast<const std::byte* const*>(inputs);
  auto* const* out = reinterpret_cast<std::byte* const*>(outputs);
  std::size_t i = 0;
  if (how == stores::streaming) {
    i = elements_before_line<T>(outputs[0], count);
    fold_scalars<T, Op>(inputs, n, outputs, m, 0, i);
  }
  if (n == 2 && m == 1 && how == stores::ordinary) {  // what rings and pairs do
    const std::byte* const pair[] = {in[0], in[1]};
    std::byte* const to[] = {out[0]};
    for (; count - i >= 4 * lanes; i += 4 * lanes) fold_four<T, Op>(pair, 2, to, 1, i * sizeof(T), stores::ordinary);
  }
  for (; count - i >= 4 * lanes; i += 4 * lanes) fold_four<T, Op>(in, n, out, m, i * sizeof(T), how);
  for (; count - i >= lanes; i += lanes) fold_one<T, Op>(in, n, out, m, i * sizeof(T));
  fold_scalars<T, Op>(inputs, n, outputs, m, i, count);
  if (how == stores::streaming) stream_fence();
}

/// Whole lines to an aligned address.
inline void copy_lines(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  using bytes = typename vectors<std::uint8_t, width>::type;
  using loose = typename vectors<std::uint8_t, width>::loose;
  for (; lines != 0; --lines, to += 64, from += 64) {
    bytes v[64 / width];
    for (std::size_t k = 0; k < 64 / width; ++k) v[k] = *reinterpret_cast<const loose*>(from + k * width);
    for (std::size_t k = 0; k < 64 / width; ++k) put_past_caches(to + k * width, v[k]);
  }
}
