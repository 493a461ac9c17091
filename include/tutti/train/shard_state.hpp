#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
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
    gradients_.resize(size_);
    weight_ = weight;
    scale_ = grad::factor_of(what, weight);
    averaged_ = false;
    verdict_ = grad::step::apply;
    exceptions_ = std::uncaught_exceptions();
    begun_ = true;
  }
  /// The same for a pass with other ranks. A rank that has left the last one before average(), or has no memory for
  /// this one, aborts `world`: the others would wait for it, or add up gradients of different steps. Errors:
  /// usage_error for the former, too.
  template <class Comm>
  void begin(Comm& world, const char* who, double weight, grad::contribution what) {
    if (begun_ && !averaged_) {
      world.abort();
      throw usage_error(std::string(who) +
                        ": begin() in a pass that was left before average(), in which the other ranks are still; the "
                        "communicator is aborted. A rank that cannot use its gradients calls skip(), and goes on with "
                        "the pass");
    }
    try {
      begin(weight, what);
    } catch (const usage_error&) {
      throw;
    } catch (...) {
      world.abort();
      throw;
    }
  }
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  [[nodiscard]] bool averaged() const noexcept { return averaged_; }
  /// In a destructor: whether the others would wait for this rank. After average() only an exception tells: what all
  /// ranks know there, such as an overflow, they may well leave without a step.
  [[nodiscard]] bool broken_off() const noexcept {
    return begun_ && (!averaged_ || std::uncaught_exceptions() > exceptions_);
  }
  /// What this rank's gradients are multiplied by before they are added up.
  [[nodiscard]] double scale() const noexcept { return scale_; }
  /// Sums; means from average() on.
  [[nodiscard]] std::span<T> gradients() noexcept { return gradients_; }
  [[nodiscard]] std::span<const T> gradients() const noexcept { return gradients_; }

  /// No rank is to step by this pass. Errors: usage_error outside a pass, after average(), and for grad::step::apply.
  void skip(grad::step why, const char* who) {
    if (why == grad::step::apply || !begun_ || averaged_)
      throw usage_error(std::string(who) + ": skip() says why, between begin() and average()");
    verdict_ = why > verdict_ ? why : verdict_;
  }
  /// Collective: an all_reduce of 16 bytes, with which all ranks learn the weight of all, and whether one skips; then
  /// the sums stay as they are. Where all weights are 0, the mean is 0. Again in the same pass it sends nothing, and
  /// its result is the same.
  template <class Comm>
  task<grad::step> average(Comm& world) {
    if (averaged_) co_return verdict_;
    std::array<double, 2> tail{weight_, 0};
    grad::step_flags::put(verdict_, std::span<double>{tail});
    co_await world.all_reduce(tail, sum);
    total_ = tail[0];
    verdict_ = grad::step_flags::take(std::span<const double>{tail});
    if (verdict_ == grad::step::apply && total_ > 0) grad::divide(std::span{gradients_}, total_);
    averaged_ = true;
    co_return verdict_;
  }
  /// What average() found, and the weight of all ranks then.
  [[nodiscard]] grad::step verdict() const noexcept { return verdict_; }
  [[nodiscard]] double total_weight() const noexcept { return total_; }
  /// The rule, by the mean times `factor`, unless a rank skips or all weights are 0: then nothing changes, and the
  /// result is false. Ends the pass.
  bool step(std::span<T> parameters, double factor) {
    begun_ = averaged_ = false;
    if (verdict_ != grad::step::apply || !(total_ > 0)) return false;
    grad::multiply(std::span{gradients_}, factor);
    step_by(parameters, gradients_);
    return true;
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
  double weight_ = 1, scale_ = 1, total_ = 0;
  grad::step verdict_ = grad::step::apply;
  bool begun_ = false, averaged_ = false;
  int exceptions_ = 0;  // under way as the pass began
  std::uint64_t steps_ = 0;
};

}  // namespace tutti::train
