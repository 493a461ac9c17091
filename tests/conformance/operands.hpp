#pragma once
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include <tutti/core/reduction.hpp>

#include <conformance/memory.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// Three bytes: a size that no word divides.
struct odd {
  std::uint8_t a, b, c;
  friend bool operator==(const odd&, const odd&) = default;
};
/// As large as elements may be.
struct page {
  std::uint32_t words[1024];
  friend bool operator==(const page&, const page&) = default;
};

template <class... T>
struct types {};
/// One for each dtype that can be reduced.
using every_number = types<bool, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long,
                           tutti::float16, tutti::bfloat16, float, double, long double>;
/// Those that came later: reduced with fewer counts, as what travels is bytes.
using every_other_number = types<tutti::float8_e4m3, tutti::float8_e5m2, std::complex<float>, std::complex<double>>;
/// Other names for some of them.
using every_alias = types<char, wchar_t, char8_t, char16_t, char32_t, long long, unsigned long long>;

template <class... A, class... B, class... C>
constexpr types<A..., B..., C...> joined(types<A...>, types<B...>, types<C...>) noexcept {
  return {};
}
template <class... T>
constexpr std::size_t number_of(types<T...>) noexcept {
  return sizeof...(T);
}
/// One for each dtype: a struct is one too, which can only be moved.
using every_dtype = decltype(joined(every_number{}, every_other_number{}, types<odd>{}));
static_assert(number_of(every_dtype{}) == tutti::dtype_count);

template <class... T, class F>
void for_each(types<T...>, F f) {
  (f.template operator()<T>(), ...);
}
/// For the type whose turn it is: what cannot be tried with all of them takes one after the other.
template <class... T, class F>
void for_one(types<T...>, std::size_t turn, F f) {
  std::size_t at = 0;
  ((at++ == turn % sizeof...(T) ? f.template operator()<T>() : void()), ...);
}

/// Every collective is tried with each of these, in every dtype: empty, fewer elements than ranks, counts that no
/// number of ranks divides, and more than a slot, a piece of a stream and 16 bits hold.
inline const sizes every_count{0, 1, 2, 3, 7, 64, 1000, 65537};

/// Operands repeat after a prime number of elements: blocks that change places do not go unnoticed.
inline constexpr std::size_t period = 251;

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// What narrow floats are computed in; anything else is computed as it is.
template <class T>
using wide = std::conditional_t<std::is_floating_point_v<T> || tutti::complex_number<T>, T, float>;

template <class T>
T from_int(long long n) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(n);
  else if constexpr (tutti::complex_number<T>)
    return T(static_cast<typename T::value_type>(n), static_cast<typename T::value_type>(2 * n));
  else
    return static_cast<T>(static_cast<wide<T>>(n));
}

/// What is moved; in a bool, a pattern and not one of a hundred.
template <class T>
T element_of(std::size_t i, std::uint64_t salt) {
  if constexpr (std::is_same_v<T, bool>) return mix(mix(salt) + i % period) % 2 != 0;
  const std::uint64_t h = mix(salt) + i % period;
  if constexpr (std::is_same_v<T, odd>) {
    return {static_cast<std::uint8_t>(h), static_cast<std::uint8_t>(h >> 8), static_cast<std::uint8_t>(h >> 16)};
  } else if constexpr (std::is_same_v<T, page>) {
    page p;
    for (std::size_t w = 0; w < 1024; ++w) p.words[w] = static_cast<std::uint32_t>(h + w * 7);
    return p;
  } else {
    return from_int<T>(static_cast<long long>(h % 100));
  }
}

/// Small integers, so that sums and products of nine are exact in every type and in every order; all bits for the
/// bitwise reductions.
template <class T>
T operand(tutti::reduction_kind kind, int rank, std::size_t i, std::uint64_t salt) {
  using enum tutti::reduction_kind;
  const std::uint64_t h = mix(mix(salt) + i % period + static_cast<std::uint64_t>(rank) * 4096);
  if constexpr (std::is_same_v<T, bool>) return kind == prod || kind == band ? h % 4 != 0 : h % 4 == 0;
  if constexpr (std::is_integral_v<T>)
    if (kind == band || kind == bor || kind == bxor) return static_cast<T>(h);
  constexpr bool has_sign = !std::is_unsigned_v<T>;
  // With 3 significant bits, 8 is as far as one can count, and 2^8 the most that float8_e4m3 holds.
  constexpr bool narrow = tutti::narrow_float<T> && sizeof(T) == 1;
  if (narrow && rank >= 8) return from_int<T>(kind == prod ? 1 : 0);
  if (kind == prod) return from_int<T>(h % 3 == 0 ? 1 : h % 3 == 1 || !has_sign ? 2 : -1);
  if (narrow) return from_int<T>(static_cast<long long>(h % 3) - 1);
  return from_int<T>(static_cast<long long>(h % 8) - (has_sign ? 3 : 0));
}

/// What the reduction of operand() over `size` ranks must be.
template <class T>
T reduced(tutti::reduction_kind kind, int size, std::size_t i, std::uint64_t salt) {
  using enum tutti::reduction_kind;
  using accumulator = std::conditional_t<std::is_integral_v<T>, std::uint64_t, wide<T>>;
  const auto in = [&](int rank) { return operand<T>(kind, rank, i, salt); };
  auto all = static_cast<accumulator>(in(0));
  T smallest = in(0), largest = in(0);
  for (int r = 1; r < size; ++r) {
    const T next = in(r);
    if constexpr (!tutti::complex_number<T>) {
      smallest = next < smallest ? next : smallest;
      largest = largest < next ? next : largest;
    }
    if (kind == prod)
      all *= static_cast<accumulator>(next);
    else if constexpr (std::is_integral_v<T>)
      all = kind == band   ? all & static_cast<accumulator>(next)
            : kind == bor  ? all | static_cast<accumulator>(next)
            : kind == bxor ? all ^ static_cast<accumulator>(next)
                           : all + static_cast<accumulator>(next);
    else
      all += static_cast<accumulator>(next);
  }
  if (kind == min) return smallest;
  if (kind == max) return largest;
  if constexpr (std::is_same_v<T, bool>) return all != 0;
  if (kind == mean) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<long long>(all) / size);
    else
      return static_cast<T>(all / wide<T>(static_cast<float>(size)));
  }
  return static_cast<T>(all);
}

/// A function of the index that repeats after a period, computed once for the first `count` elements. Moves bytes a
/// period at a time: under a sanitizer, element by element would take longer than what is tested.
template <class T>
class table {
 public:
  template <class F>
  table(std::size_t count, F value) : values_(new T[std::min(count, period)]) {
    for (std::size_t i = 0; i < std::min(count, period); ++i) values_[i] = value(i);
  }
  const T& operator()(std::size_t i) const noexcept { return values_[i % period]; }

  void fill(std::span<T> out) const noexcept {
    for (std::size_t i = 0; i < out.size(); i += period)
      std::memcpy(&out[i], values_.get(), std::min(period, out.size() - i) * sizeof(T));
  }
  /// False may mean that only the padding, or the sign of a zero, is another.
  [[nodiscard]] bool same_bytes(std::span<const T> got) const noexcept {
    for (std::size_t i = 0; i < got.size(); i += period)
      if (std::memcmp(&got[i], values_.get(), std::min(period, got.size() - i) * sizeof(T)) != 0) return false;
    return true;
  }

 private:
  std::unique_ptr<T[]> values_;
};

template <class T>
void expect_equal(const which& c, std::span<T> got, const table<T>& wanted) {
  if (!wanted.same_bytes(got)) expect_equal(c, got, [&](std::size_t i) { return wanted(i); });
}

/// A buffer between two margins that nobody may write to; misaligned for vectors, aligned for the element.
template <class T>
class guarded {
 public:
  explicit guarded(std::size_t count) : count_(count), memory_(own_memory.take((count + 2 * margin) * sizeof(T))) {
    std::memset(bytes(), pattern, (count + 2 * margin) * sizeof(T));
  }
  guarded(std::size_t count, const table<T>& values) : guarded(count) { values.fill(span()); }
  [[nodiscard]] std::span<T> span() const noexcept { return {reinterpret_cast<T*>(memory_.get()) + margin, count_}; }
  [[nodiscard]] bool intact() const noexcept {
    const unsigned char* b = bytes();
    for (std::size_t i = 0; i < margin * sizeof(T); ++i)
      if (b[i] != pattern || b[(margin + count_) * sizeof(T) + i] != pattern) return false;
    return true;
  }

 private:
  static constexpr std::size_t margin = 3;
  static constexpr unsigned char pattern = 0x5a;
  [[nodiscard]] unsigned char* bytes() const noexcept { return reinterpret_cast<unsigned char*>(memory_.get()); }

  std::size_t count_;
  block_of_memory memory_;
};

inline std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed = 0xcbf29ce484222325) noexcept {
  for (const std::byte b : bytes) seed = (seed ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  return seed;
}

}  // namespace conformance
