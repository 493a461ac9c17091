#pragma once
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>

#include <tutti/config.hpp>

namespace tutti::cuda::detail {

/// The elements that one instruction loads or stores: `W` of them, 16 bytes at most, aligned as a whole.
template <class T, std::size_t W>
struct alignas(sizeof(T) * W) vector {
  static_assert(sizeof(T) * W <= 16);
  T lane[W];
};

#if TUTTI_CUDA_ARCH
template <std::size_t bytes>
struct word;
template <>
struct word<1> {
  using type = unsigned char;
};
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned int;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};
#endif

/// Loads elements that are read once, so that they are the first to leave the caches (ld.global.cs). store() does the
/// same.
template <std::size_t W, class T>
TUTTI_HOST_DEVICE vector<T, W> load(const T* from) noexcept {
#if TUTTI_CUDA_ARCH
  using raw = typename word<sizeof(T) * W>::type;
  return std::bit_cast<vector<T, W>>(__ldcs(reinterpret_cast<const raw*>(from)));
#else
  vector<T, W> v;
  std::memcpy(static_cast<void*>(&v), std::assume_aligned<sizeof v>(from), sizeof v);
  return v;
#endif
}
template <std::size_t W, class T>
TUTTI_HOST_DEVICE void store(T* to, const vector<T, W>& v) noexcept {
#if TUTTI_CUDA_ARCH
  using raw = typename word<sizeof(T) * W>::type;
  __stcs(reinterpret_cast<raw*>(to), std::bit_cast<raw>(v));
#else
  std::memcpy(static_cast<void*>(std::assume_aligned<sizeof v>(to)), &v, sizeof v);
#endif
}

}  // namespace tutti::cuda::detail
