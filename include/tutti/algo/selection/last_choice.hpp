#pragma once
#include <cstddef>

#include <tutti/algo/selection/problem.hpp>
#include <tutti/algo/selection/supported.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

/// Cache of the algorithm last chosen for a group, valid until a call of another collective, size or element size.
/// Choosing by algo/selection/choose.hpp takes 600 instructions, and a call asks three times: a third of the time of a
/// small call.
class last_choice {
 public:
  /// Returns the cached algorithm, or that of `weigh()` if the last call was different.
  template <class Args, class Weigh>
  algorithm of(const problem& here, Weigh weigh) noexcept {
    const void* const collective = &algorithms_of<Args>;
    if (collective_ != collective || bytes_ != here.bytes || element_ != here.element) {
      collective_ = collective;
      bytes_ = here.bytes;
      element_ = here.element;
      via_ = weigh();
    }
    return via_;
  }

 private:
  const void* collective_ = nullptr;
  std::size_t bytes_ = 0, element_ = 0;
  algorithm via_ = algorithm::automatic;
};

}  // namespace tutti::algo
