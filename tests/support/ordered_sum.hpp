#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti_test {

/// Operands of sums whose bits depend on the order: large ones that cancel out, and small ones that are lost beside a
/// large one. The values of element i are those of any buffer that it is the i-th of.
template <class T>
T ordered_operand(int rank, std::size_t i) {
  using wide = std::conditional_t<std::is_floating_point_v<T>, T, float>;
  std::uint64_t h = (i + 1) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03U;
  h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9U;
  h = (h ^ (h >> 32)) * 0x94d049bb133111ebU;
  h ^= h >> 29;
  const bool large = h % 2 == 0;
  const auto mantissa = static_cast<double>(large ? 1 + (h >> 8) % 2 : 65 + (h >> 8) % 63);
  const double value = std::ldexp(mantissa, large ? (std::is_same_v<T, double> ? 50 : 13) : -20);
  return static_cast<T>(static_cast<wide>((h >> 40) % 2 == 0 ? value : -value));
}

/// The sum of element i over ranks [0, terms), one after the other; 16-bit types in float, rounded once.
template <class T>
T ordered_sum(int terms, std::size_t i) {
  using wide = std::conditional_t<std::is_floating_point_v<T>, T, float>;
  wide sum = ordered_operand<T>(0, i);
  for (int r = 1; r < terms; ++r) sum += static_cast<wide>(ordered_operand<T>(r, i));
  return static_cast<T>(sum);
}

template <class T>
std::vector<T> ordered_operands(int rank, std::size_t count) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = ordered_operand<T>(rank, i);
  return v;
}
template <class T>
std::vector<T> ordered_sums(int terms, std::size_t count) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = ordered_sum<T>(terms, i);
  return v;
}

/// How many of the elements would have other bits if ranks were taken in another order.
template <class T>
std::size_t order_matters(int ranks, std::size_t count) {
  std::size_t differences = 0;
  for (std::size_t i = 0; i < count; ++i) {
    using wide = std::conditional_t<std::is_floating_point_v<T>, T, float>;
    wide sum = ordered_operand<T>(ranks - 1, i);
    for (int r = ranks - 1; r-- > 0;) sum += static_cast<wide>(ordered_operand<T>(r, i));
    const T backwards = static_cast<T>(sum), forwards = ordered_sum<T>(ranks, i);
    differences += std::memcmp(&backwards, &forwards, sizeof(T)) != 0;
  }
  return differences;
}

/// The first element whose bits differ; the count where all are alike.
template <class T>
std::size_t first_difference(std::span<const T> a, std::span<const T> b) {
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return a.size();
  std::size_t i = 0;
  while (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) ++i;
  return i;
}

}  // namespace tutti_test
