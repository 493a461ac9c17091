#pragma once
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <tutti/core/dtype.hpp>

namespace tutti::cuda {

/// A span of elements in the memory of a device; does not own. It is a contiguous range, so that collectives over
/// devices take it; it has no operator[], since the host must not access its elements.
template <class T>
  requires element<std::remove_const_t<T>>
class device_span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr device_span() = default;
  constexpr device_span(T* data, std::size_t count) noexcept : data_(data), count_(count) {}
  template <class U>
    requires std::same_as<const U, T>
  constexpr device_span(device_span<U> other) noexcept : data_(other.data()), count_(other.size()) {}

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return count_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return count_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] constexpr T* begin() const noexcept { return data_; }
  [[nodiscard]] constexpr T* end() const noexcept { return data_ + count_; }

  /// Returns `count` elements from `offset` on, which must be inside.
  [[nodiscard]] constexpr device_span subspan(std::size_t offset, std::size_t count) const noexcept {
    return {data_ + offset, count};
  }
  [[nodiscard]] constexpr device_span first(std::size_t count) const noexcept { return {data_, count}; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace tutti::cuda

template <class T>
  requires tutti::element<std::remove_const_t<T>>
inline constexpr bool std::ranges::enable_borrowed_range<tutti::cuda::device_span<T>> = true;
