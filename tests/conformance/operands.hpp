#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include <tutti/core/reduction.hpp>

namespace conformance {

template <class... T>
struct types {};
/// One for each dtype.
using every_dtype = types<bool, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long,
                          tutti::float16, tutti::bfloat16, float, double, long double>;
/// Other names for some of them.
using every_alias = types<char, wchar_t, char8_t, char16_t, char32_t, long long, unsigned long long>;

template <class... T, class F>
void for_each(types<T...>, F f) {
  (f.template operator()<T>(), ...);
}

/// Operands repeat after a prime number of elements: blocks that change places do not go unnoticed.
inline constexpr std::size_t period = 251;

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <class T>
using wide = std::conditional_t<std::is_floating_point_v<T>, T, float>;

template <class T>
T from_int(long long n) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(n);
  else
    return static_cast<T>(static_cast<wide<T>>(n));
}

/// Small integers, so that sums and products of eight are exact in every type and in every order; all bits for the
/// bitwise reductions.
template <class T>
T operand(tutti::reduction_kind kind, int rank, std::size_t i, std::uint64_t salt) {
  using enum tutti::reduction_kind;
  const std::uint64_t h = mix(mix(salt) + i % period + static_cast<std::uint64_t>(rank) * 4096);
  if constexpr (std::is_same_v<T, bool>) return kind == prod || kind == band ? h % 4 != 0 : h % 4 == 0;
  if constexpr (std::is_integral_v<T>)
    if (kind == band || kind == bor || kind == bxor) return static_cast<T>(h);
  constexpr bool has_sign = !std::is_unsigned_v<T>;
  if (kind == prod) return from_int<T>(h % 3 == 0 ? 1 : h % 3 == 1 || !has_sign ? 2 : -1);
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
    smallest = next < smallest ? next : smallest;
    largest = largest < next ? next : largest;
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
      return static_cast<T>(all / static_cast<wide<T>>(size));
  }
  return static_cast<T>(all);
}

/// One period of a function of the index.
template <class T>
class table {
 public:
  template <class F>
  explicit table(F value) {
    for (std::size_t i = 0; i < period; ++i) values_[i] = value(i);
  }
  const T& operator()(std::size_t i) const noexcept { return values_[i % period]; }

 private:
  std::array<T, period> values_;
};

/// A buffer between two margins that nobody may write to; misaligned for vectors, aligned for the element.
template <class T>
class guarded {
 public:
  explicit guarded(std::size_t count) : count_(count), memory_(new T[count + 2 * margin]) {
    std::memset(bytes(), pattern, (count + 2 * margin) * sizeof(T));
  }
  template <class F>
  guarded(std::size_t count, const F& value) : guarded(count) {
    for (std::size_t i = 0; i < count; ++i) span()[i] = value(i);
  }
  [[nodiscard]] std::span<T> span() const noexcept { return {memory_.get() + margin, count_}; }
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
  std::unique_ptr<T[]> memory_;
};

inline std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed = 0xcbf29ce484222325) noexcept {
  for (const std::byte b : bytes) seed = (seed ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  return seed;
}

}  // namespace conformance
