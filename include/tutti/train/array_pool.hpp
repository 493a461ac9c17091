#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/backend/mapped_array.hpp>

namespace tutti::train {

/// Arrays in memory that peers map, which are used again and again: the smallest that is large enough, or a new one.
template <element T>
class array_pool {
 public:
  /// Holds anything. Errors: as of communicator::allocate.
  template <class Comm>
  [[nodiscard]] mapped_array<T> take(Comm& world, std::size_t count) {
    auto best = free_.end();
    for (auto a = free_.begin(); a != free_.end(); ++a)
      if (a->size() >= count && (best == free_.end() || a->size() < best->size())) best = a;
    if (best != free_.end()) {
      std::swap(*best, free_.back());
      auto taken = std::move(free_.back());
      free_.pop_back();
      return taken;
    }
    free_.reserve(++arrays_);  // so that give() allocates nothing
    auto made = world.template allocate<T>(count);
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
