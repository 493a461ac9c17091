#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include <tutti/core/float8.hpp>
#include <tutti/core/half.hpp>

namespace tutti {

/// The type of an element, for code below the communicator's typed interface.
enum class dtype : std::uint8_t {
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  extended,
  boolean,
  opaque,
  f8_e4m3,
  f8_e5m2,
  c64,
  c128
};

inline constexpr std::size_t dtype_count = 19;

constexpr std::string_view name(dtype t) noexcept {
  constexpr std::string_view names[] = {"int8",        "uint8",       "int16",       "uint16",    "int32",
                                        "uint32",      "int64",       "uint64",      "float16",   "bfloat16",
                                        "float32",     "float64",     "long double", "bool",      "struct",
                                        "float8_e4m3", "float8_e5m2", "complex64",   "complex128"};
  static_assert(std::size(names) == dtype_count);
  const auto i = static_cast<std::size_t>(t);  // may come from a peer
  return i < std::size(names) ? names[i] : "unknown";
}

/// Returns the bytes of one element; 0 for dtype::opaque, whose size is passed beside it.
constexpr std::size_t size_of(dtype t) noexcept {
  constexpr std::uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, sizeof(long double), sizeof(bool),
                                    0, 1, 1, 8, 16};
  static_assert(std::size(sizes) == dtype_count);
  const auto i = static_cast<std::size_t>(t);
  return i < std::size(sizes) ? sizes[i] : 0;
}

/// A type that can be sent: its bytes are its value.
template <class T>
concept element = std::is_object_v<T> && std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T> &&
                  !std::is_pointer_v<T> && !std::is_volatile_v<T>;

/// A floating-point storage type of this library, which is computed in float.
template <class T>
concept narrow_float = std::same_as<T, float16> || std::same_as<T, bfloat16> || std::same_as<T, float8_e4m3> ||
                       std::same_as<T, float8_e5m2>;

/// std::complex of float or double, or a type with the same interface and memory layout. Does not name std::complex
/// because <complex> takes long to compile.
template <class T>
concept complex_number = element<T> && requires(const T& z) {
  typename T::value_type;
  requires std::same_as<typename T::value_type, float> || std::same_as<typename T::value_type, double>;
  requires sizeof(T) == 2 * sizeof(typename T::value_type);
  { z.real() } -> std::same_as<typename T::value_type>;
  { z.imag() } -> std::same_as<typename T::value_type>;
  { z* z } -> std::convertible_to<T>;
  T(z.real(), z.imag());
};

/// A type with arithmetic that the library knows: the arithmetic types of the standard, floats of 16 and 8 bits, and
/// complex numbers.
template <class T>
concept number = std::is_arithmetic_v<T> || narrow_float<T> || complex_number<T>;

/// Returns the dtype of `T`: integers by width and sign, dtype::opaque for any other trivially copyable type.
template <element T>
constexpr dtype dtype_of() noexcept {
  if constexpr (std::same_as<T, bool>)
    return dtype::boolean;
  else if constexpr (std::same_as<T, float16>)
    return dtype::f16;
  else if constexpr (std::same_as<T, bfloat16>)
    return dtype::bf16;
  else if constexpr (std::same_as<T, float8_e4m3>)
    return dtype::f8_e4m3;
  else if constexpr (std::same_as<T, float8_e5m2>)
    return dtype::f8_e5m2;
  else if constexpr (complex_number<T>)
    return sizeof(T) == 8 ? dtype::c64 : dtype::c128;
  else if constexpr (std::same_as<T, float>)
    return dtype::f32;
  else if constexpr (std::same_as<T, double>)
    return dtype::f64;
  else if constexpr (std::same_as<T, long double>)
    return dtype::extended;
  else if constexpr (std::is_integral_v<T> && sizeof(T) <= 8) {  // __int128 is integral under -std=gnu++20
    constexpr int log2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<dtype>(2 * log2 + (std::is_signed_v<T> ? 0 : 1));
  } else
    return dtype::opaque;
}

}  // namespace tutti
