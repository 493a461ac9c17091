#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/weight.hpp>
#include <tutti/train/update_rule.hpp>

namespace tutti::train {

/// What a rank has of a step that is divided among ranks: a rule, what it remembers for this rank's elements, and in a
/// pass the sums of their gradients with the weight that this rank's gradients count for. Under sharded_optimizer and
/// sharded_parameters. Memory: slots of the rule times the elements, and once more from the first begin() on.
template <std::floating_point T, update_rule<T> Rule>
class shard_state {
 public:
  shard_state(std::size_t elements, Rule rule) : rule_(rule), size_(elements), memory_(elements * Rule::slots) {}

  /// Errors: usage_error for a bad weight, which changes nothing.
  void begin(double weight, grad::contribution what) {
    grad::weight_digits::check(weight);
    weight_ = weight;
    scale_ = grad::factor_of(what, weight);
    averaged_ = false;
    gradients_.resize(size_);
    begun_ = true;
  }
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  [[nodiscard]] bool averaged() const noexcept { return averaged_; }
  /// What this rank's gradients are multiplied by before they are added up.
  [[nodiscard]] double scale() const noexcept { return scale_; }
  /// Sums; means from average() on.
  [[nodiscard]] std::span<T> gradients() noexcept { return gradients_; }
  [[nodiscard]] std::span<const T> gradients() const noexcept { return gradients_; }

  /// Collective: an all_reduce of 8 bytes. Where all weights are 0, the sums stay: they are 0.
  template <class Comm>
  task<> average(Comm& world) {
    const double total = co_await world.all_reduce(weight_, sum);
    if (total > 0) grad::divide(std::span{gradients_}, total);
    averaged_ = true;
  }
  /// The rule, by the mean times `factor`; ends the pass.
  void step(std::span<T> parameters, double factor) {
    grad::multiply(std::span{gradients_}, factor);
    begun_ = averaged_ = false;
    step_by(parameters, gradients_);
  }
  void step_by(std::span<T> parameters, std::span<const T> gradients) {
    count_step();
    apply(0, parameters, gradients);
  }
  /// The same piece by piece: count_step() once, then the rule for this rank's elements from `first` on.
  void count_step() noexcept { ++steps_; }
  void apply(std::size_t first, std::span<T> parameters, std::span<const T> gradients) {
    auto memory = slots();
    for (auto& slot : memory) slot = slot.subspan(first, parameters.size());
    rule_(parameters, gradients, memory, steps_);
  }

  [[nodiscard]] Rule& rule() noexcept { return rule_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  void resume(std::uint64_t steps) noexcept { steps_ = steps; }
  /// What the rule remembers, slot by slot, and its bytes.
  [[nodiscard]] std::array<std::span<T>, Rule::slots> slots() noexcept {
    std::array<std::span<T>, Rule::slots> all;
    for (std::size_t s = 0; s < Rule::slots; ++s) all[s] = std::span{memory_}.subspan(s * size_, size_);
    return all;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size() * sizeof(T); }

 private:
  Rule rule_;
  std::size_t size_;
  std::vector<T> memory_, gradients_;
  double weight_ = 1, scale_ = 1;
  bool begun_ = false, averaged_ = false;
  std::uint64_t steps_ = 0;
};

}  // namespace tutti::train
