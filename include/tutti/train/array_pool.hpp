#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/backend/mapped_array.hpp>

namespace tutti::train {

/// A pool of arrays from communicator::allocate, which peers map. There are never more arrays than were in use at the
/// same time, and none is larger than one that was asked for. One thread at a time.
template <element T>
class array_pool {
 public:
  /// Returns an array of at least `count` elements, with any contents: the smallest free one that is large enough, or a
  /// new one in place of the largest free one. Not collective. Errors: as of communicator::allocate.
  template <class Comm>
  [[nodiscard]] mapped_array<T> take(Comm& world, std::size_t count) {
    const auto better = [&](const mapped_array<T>& a, const mapped_array<T>& b) {
      return tutti::detail::fits_better(a.size(), b.size(), count);
    };
    if (const auto best = std::min_element(free_.begin(), free_.end(), better); best != free_.end()) {
      std::swap(*best, free_.back());
      auto taken = std::move(free_.back());
      free_.pop_back();
      if (taken.size() >= count) return taken;
      elements_ -= taken.size();
      --arrays_;
    }  // an array that is too small is freed before the new one is allocated
    free_.reserve(arrays_ + 1);  // so that give() allocates nothing
    auto made = world.template allocate<T>(count);
    ++arrays_;
    elements_ += count;
    return made;
  }
  /// Takes back an array that take() returned.
  void give(mapped_array<T> array) noexcept { free_.push_back(std::move(array)); }

  /// Returns the bytes of all arrays, free or in use.
  [[nodiscard]] std::size_t bytes() const noexcept { return elements_ * sizeof(T); }

 private:
  std::vector<mapped_array<T>> free_;
  std::size_t arrays_ = 0, elements_ = 0;
};

}  // namespace tutti::train
