#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <tutti/core/dtype.hpp>

namespace tutti {

namespace detail {

/// Returns true if a free array of `a` elements fits a request for `wanted` better than one of `b`: the smallest that
/// is large enough, or else the largest, which is then replaced. So there are never more arrays than are in use at a
/// time.
constexpr bool fits_better(std::size_t a, std::size_t b, std::size_t wanted) noexcept {
  if ((a >= wanted) != (b >= wanted)) return a >= wanted;
  return a >= wanted ? a < b : a > b;
}

}  // namespace detail

/// Memory that peers on the same node map, so that collectives on it stage nothing. Owning; move-only.
template <element T>
class mapped_array {
 public:
  mapped_array() = default;
  mapped_array(mapped_array&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  mapped_array& operator=(mapped_array&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }

  /// Takes over `memory`, which holds `count` elements. Made by communicator::allocate.
  mapped_array(std::shared_ptr<std::byte> memory, std::size_t count) noexcept
      : memory_(std::move(memory)), count_(count) {}

  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T* begin() const noexcept { return data(); }
  [[nodiscard]] T* end() const noexcept { return data() + count_; }
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data()[i]; }
  [[nodiscard]] std::span<T> span() const noexcept { return {data(), count_}; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t count_ = 0;
};

}  // namespace tutti
