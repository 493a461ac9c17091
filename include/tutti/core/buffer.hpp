#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <tutti/core/dtype.hpp>

namespace tutti {

/// The memory that a buffer lies in.
enum class space : std::uint8_t { host, cuda };

/// A typed span whose C++ type has been erased. Does not own.
template <class Void>
struct basic_buffer {
  Void* data = nullptr;
  std::size_t count = 0;  ///< elements
  std::uint32_t element_bytes = 1;
  dtype type = dtype::u8;
  space where = space::host;

  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * element_bytes; }
};
using buffer = basic_buffer<void>;
using const_buffer = basic_buffer<const void>;

template <element T>
constexpr buffer erase_type(std::span<T> s) noexcept {
  return {s.data(), s.size(), sizeof(T), dtype_of<T>(), space::host};
}
template <element T>
constexpr const_buffer erase_type(std::span<const T> s) noexcept {
  return {s.data(), s.size(), sizeof(T), dtype_of<T>(), space::host};
}

/// Returns true if the two ranges share a byte.
inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) noexcept {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && x < y + b_bytes && y < x + a_bytes;
}

}  // namespace tutti
