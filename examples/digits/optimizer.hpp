#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/train/update_rule.hpp>

namespace digits {

/// The update rule; its rate is set in every step.
inline constexpr tutti::train::sgd momentum_rule{.rate = 0.1, .momentum = 0.9};

/// SGD for all parameters on one rank.
template <class T>
class sgd {
 public:
  explicit sgd(std::size_t parameter_count, tutti::train::sgd rule = momentum_rule)
      : rule_{rule}, velocity_(parameter_count, T{0}) {}

  /// Takes one step. The gradients are one span for each tensor, in the order of the parameters.
  void step(std::span<T> parameters, std::span<const std::span<T>> gradients, double rate) {
    rule_.rate = rate;
    ++steps_;
    std::size_t first = 0;
    for (const std::span<const T> gradient : gradients) {
      const std::size_t count = gradient.size();
      rule_(parameters.subspan(first, count), gradient, std::array{velocity().subspan(first, count)}, steps_);
      first += count;
    }
  }

  /// Returns the velocity, which a checkpoint must hold beside the parameters.
  std::span<T> velocity() { return velocity_; }

 private:
  tutti::train::sgd rule_;
  std::uint64_t steps_ = 0;
  std::vector<T> velocity_;
};

}  // namespace digits
