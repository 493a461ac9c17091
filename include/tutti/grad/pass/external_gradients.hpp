#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/core/external_segments.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::grad {

/// The gradients of a pass that stay in the user's memory until their bucket is reduced.
class external_gradients {
 public:
  explicit external_gradients(std::size_t parameters) : at_(parameters), place_(parameters), parts_(parameters) {}

  /// Prepares for the buckets of a plan.
  void arrange(const plan& p) {
    std::size_t before = 0;
    for (const bucket& k : p.buckets)
      for (const bucket_slot& s : k.slots) place_[static_cast<std::size_t>(s.parameter)] = before++;
  }
  void clear() noexcept { std::fill(at_.begin(), at_.end(), nullptr); }

  void put(std::size_t parameter, const void* gradient) noexcept { at_[parameter] = gradient; }
  [[nodiscard]] bool has(std::size_t parameter) const noexcept { return at_[parameter] != nullptr; }

  /// Copies a gradient to its place, multiplied by `factor`, if it lies in the user's memory.
  template <class T>
  void bring(std::size_t parameter, std::span<T> to, double factor) const noexcept {
    if (has(parameter)) multiply(static_cast<const T*>(at_[parameter]), to.data(), to.size(), factor);
  }

  /// Returns those of a bucket of elements of T, to be multiplied by `factor` as they are copied into it. The list is
  /// valid until it is made for the next pass.
  template <class T>
  [[nodiscard]] external_segments list(const bucket& k, double factor) noexcept {
    if (k.slots.empty()) return {};
    external_segment* const first = parts_.data() + place_[static_cast<std::size_t>(k.slots.front().parameter)];
    external_segments found{first, 0, factor == 1 ? nullptr : &scaled<T>, factor};
    for (const bucket_slot& s : k.slots)
      if (const void* p = at_[static_cast<std::size_t>(s.parameter)]; p && s.count != 0)
        first[found.size++] = {s.offset, s.count, p};
    std::sort(first, first + found.size, [](const auto& a, const auto& b) { return a.first < b.first; });
    return found;
  }

 private:
  template <class T>
  static void scaled(const void* from, void* to, std::size_t count, double by) noexcept {
    multiply(static_cast<const T*>(from), static_cast<T*>(to), count, by);
  }

  std::vector<const void*> at_;          // by parameter
  std::vector<std::size_t> place_;       // index of each parameter, counted bucket by bucket
  std::vector<external_segment> parts_;  // in the order of place_
};

}  // namespace tutti::grad
