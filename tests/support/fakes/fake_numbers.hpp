#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/float8.hpp>
#include <tutti/core/half.hpp>

/// Elements of NCCL's types as doubles, for the fake.
namespace fake {

inline std::size_t bytes_of(tutti::nccl_dtype t) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[static_cast<std::size_t>(t)];
}

template <class F>
auto with_type(tutti::nccl_dtype t, F f) {
  using enum tutti::nccl_dtype;
  switch (t) {
    case i8:
      return f(std::int8_t{});
    case u8:
      return f(std::uint8_t{});
    case i32:
      return f(std::int32_t{});
    case u32:
      return f(std::uint32_t{});
    case i64:
      return f(std::int64_t{});
    case u64:
      return f(std::uint64_t{});
    case f16:
      return f(tutti::float16{});
    case f32:
      return f(float{});
    case f64:
      return f(double{});
    case bf16:
      return f(tutti::bfloat16{});
    case f8_e4m3:
      return f(tutti::float8_e4m3{});
    default:
      return f(tutti::float8_e5m2{});
  }
}
inline bool is_integer(tutti::nccl_dtype t) { return t <= tutti::nccl_dtype::u64; }

template <class T>
T narrowed(double x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(x);
  else
    return T{static_cast<float>(x)};
}
template <class T>
double widened(T x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(x);
  else
    return static_cast<double>(static_cast<float>(x));
}
inline double load(tutti::nccl_dtype t, const void* from, std::size_t i) {
  return with_type(t, [&]<class T>(T) {
    T x;
    std::memcpy(&x, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
    return widened(x);
  });
}
inline void store(tutti::nccl_dtype t, void* to, std::size_t i, double x) {
  with_type(t, [&]<class T>(T) {
    const T y = narrowed<T>(x);
    std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), &y, sizeof(T));
    return 0;
  });
}
/// How many of its elements NCCL before 2.29.7 writes of a product of one rank.
inline std::size_t written_alone(std::size_t n, tutti::nccl_dtype t) {
  const std::size_t blocks = std::clamp<std::size_t>((n * bytes_of(t) + 16383) / 16384, 1, 32), pack = 16 / bytes_of(t);
  return std::min(n, blocks * ((n / blocks + pack - 1) / pack * pack));
}
/// As NCCL's kernels round what they compute: 8-bit floats have no overflow.
inline double rounded(tutti::nccl_dtype t, double x) {
  return with_type(t, [&]<class T>(T) {
    if constexpr (requires { T::saturated(0.0F); })
      return widened(T::saturated(static_cast<float>(x)));
    else
      return widened(narrowed<T>(x));
  });
}

}  // namespace fake
