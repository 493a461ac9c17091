#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include <tutti/core/half.hpp>

namespace tutti {

/// What an element is, once its C++ type has been left behind at the communicator's face.
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
  opaque
};

constexpr std::string_view name(dtype t) noexcept {
  constexpr std::string_view names[] = {"int8",    "uint8",   "int16",       "uint16",  "int32",
                                        "uint32",  "int64",   "uint64",      "float16", "bfloat16",
                                        "float32", "float64", "long double", "bool",    "struct"};
  const auto i = static_cast<std::size_t>(t);  // may come from a peer
  return i < std::size(names) ? names[i] : "unknown";
}

/// Bytes of one element; 0 for dtype::opaque, whose size travels beside it.
constexpr std::size_t size_of(dtype t) noexcept {
  constexpr std::uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, sizeof(long double), sizeof(bool), 0};
  const auto i = static_cast<std::size_t>(t);
  return i < std::size(sizes) ? sizes[i] : 0;
}

/// Can travel: its bytes are its value.
template <class T>
concept element = std::is_object_v<T> && std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T> &&
                  !std::is_pointer_v<T> && !std::is_volatile_v<T>;

/// Has arithmetic that the library knows: the arithmetic types of the standard, float16 and bfloat16.
template <class T>
concept number = std::is_arithmetic_v<T> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// The dtype of `T`: integers by width and sign, dtype::opaque for any other trivially copyable type.
template <element T>
constexpr dtype dtype_of() noexcept {
  if constexpr (std::same_as<T, bool>)
    return dtype::boolean;
  else if constexpr (std::same_as<T, float16>)
    return dtype::f16;
  else if constexpr (std::same_as<T, bfloat16>)
    return dtype::bf16;
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
