#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/backend/mapped_array.hpp>

namespace tutti::train {

/// Arrays in memory that peers map, which are used again and again: the smallest that is large enough, or a new one in
/// place of the largest that is too small. So there are never more than were in use at the same time, none larger than
/// was asked for.
template <element T>
class array_pool {
 public:
  /// Holds anything. Errors: as of communicator::allocate.
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
    }  // one that is too small goes before the new one comes
    free_.reserve(arrays_ + 1);  // so that give() allocates nothing
    auto made = world.template allocate<T>(count);
    ++arrays_;
    elements_ += count;
    return made;
  }
  void give(mapped_array<T> array) noexcept { free_.push_back(std::move(array)); }

  /// Of all that it has made.
  [[nodiscard]] std::size_t bytes() const noexcept { return elements_ * sizeof(T); }

 private:
  std::vector<mapped_array<T>> free_;
  std::size_t arrays_ = 0, elements_ = 0;
};

}  // namespace tutti::train
