#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/pass/weight_sync.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/weight.hpp>
#include <tutti/train/update_rule.hpp>

namespace tutti::train {

/// A rank's part of an optimizer step that is sharded over the ranks: the update rule, its memory for this rank's
/// elements and, in a pass, the sums of their gradients. For sharded_optimizer and sharded_parameters, which move the
/// data. A pass is begin(), the sums, average() and step(). One thread at a time. Memory, in elements of T: slots of
/// the rule times the elements, and once more the elements from the first begin() on.
template <std::floating_point T, update_rule<T> Rule>
class shard_state {
 public:
  shard_state(std::size_t elements, Rule rule) : rule_(rule), size_(elements), memory_(elements * Rule::slots) {}

  /// Begins a pass with the weight of this rank's gradients. Collective: starts an all_reduce of 56 bytes, by which the
  /// ranks learn each other's weights, and does not wait for it. Errors: usage_error for a bad weight; nothing has
  /// changed then.
  template <class Comm>
  void begin(Comm& world, double weight, grad::contribution what) {
    grad::weight_digits::check(weight);
    gradients_.resize(size_);
    weights_.begin(world, weight, what, grad::partial_sums::wide, std::source_location::current());
    left_ = left_ || (begun_ && averaged_ && steps_by_it());
    averaged_ = false;
    verdict_ = grad::step::apply;
    exceptions_ = std::uncaught_exceptions();
    begun_ = true;
  }
  /// Begins a pass as above, and aborts `world` if this rank has left the last pass before average() or cannot begin
  /// this one, as the other ranks would wait for it or add up gradients of different steps. Errors: usage_error also
  /// for a pass that was left; its message begins with `who`.
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
      begin(world, weight, what);
    } catch (const usage_error&) {
      throw;
    } catch (...) {
      world.abort();
      throw;
    }
  }
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  [[nodiscard]] bool averaged() const noexcept { return averaged_; }
  /// Returns true, in a destructor, if the other ranks would wait for this one. After average() that is so only during
  /// an exception: all ranks may leave a pass there for a reason that all know, such as an overflow.
  [[nodiscard]] bool broken_off() const noexcept {
    return begun_ && (!averaged_ || std::uncaught_exceptions() > exceptions_);
  }
  /// Returns the factor of this rank's gradients before the sum: 1 if all weights above 0 are equal and this rank has
  /// one. Waits until all ranks have begun.
  [[nodiscard]] double scale() {
    if (!weights_.template factor_known<T>()) weights_.template await_weights<T>();
    return weights_.template prescale<T>();
  }
  /// Waits until all ranks have begun; scale() does not wait then.
  task<> all_begun() {
    if (auto weights = weights_.take_collective()) {
      co_await *std::move(weights);
      weights_.received();
    }
  }
  /// Returns the sums of this rank's elements, to be written by the caller; from average() on, the means.
  [[nodiscard]] std::span<T> gradients() noexcept { return gradients_; }
  [[nodiscard]] std::span<const T> gradients() const noexcept { return gradients_; }

  /// Makes all ranks skip the step of this pass. Sends nothing. Errors: usage_error outside a pass, after average(),
  /// and for grad::step::apply.
  void skip(grad::step why, const char* who) {
    if (why == grad::step::apply || !begun_ || averaged_)
      throw usage_error(std::string(who) + ": skip() says why, between begin() and average()");
    verdict_ = why > verdict_ ? why : verdict_;
  }
  /// Divides the sums, which makes them the weighted mean; 0 if all weights are 0. Returns the decision, equal on all
  /// ranks: if one skips, all do, and the sums are not divided. Collective: an all_reduce of 24 bytes. A second call in
  /// a pass sends nothing and returns the same. Errors: error{mismatch} on all ranks if some of them, but not all, have
  /// left the last pass after average() without its step, for example by an exception that was caught: their parts are
  /// of another step. All later passes fail with it, too, until resume().
  template <class Comm>
  task<grad::step> average(Comm& world, const char* who) {
    if (averaged_) co_return verdict_;
    co_await all_begun();
    std::array<double, 3> tail{left_ ? 1.0 : 0.0, left_ ? world.rank() : 0.0, 0};
    grad::step_flags::put(verdict_, std::span<double>{tail});
    co_await world.all_reduce(tail, sum);
    if (tail[0] > 0 && tail[0] < world.size()) {
      begun_ = false;  // on all ranks: none waits for another
      refuse_torn(world, who, tail[0], tail[1]);
    }
    left_ = false;
    total_ = weights_.total();
    verdict_ = grad::step_flags::take(std::span<const double>{tail});
    if (verdict_ == grad::step::apply && total_ > 0)
      grad::divide(std::span{gradients_}, weights_.template divisor<T>() * weights_.template remaining_divisor<T>());
    averaged_ = true;
    co_return verdict_;
  }
  /// Return the decision of the last average(), and the sum of all weights in it.
  [[nodiscard]] grad::step verdict() const noexcept { return verdict_; }
  [[nodiscard]] double total_weight() const noexcept { return total_; }
  /// Applies the rule with the mean times `factor`, and ends the pass. Returns false and changes no parameter if a rank
  /// skips or all weights are 0. Call it after average().
  bool step(std::span<T> parameters, double factor) {
    begun_ = averaged_ = false;
    if (!steps_by_it()) return false;
    grad::multiply(std::span{gradients_}, factor);
    step_by(parameters, gradients_);
    return true;
  }
  /// Applies the rule to all of this rank's elements, with these gradients.
  void step_by(std::span<T> parameters, std::span<const T> gradients) {
    count_step();
    apply(0, parameters, gradients);
  }
  /// Apply the rule part by part: call count_step() once, then apply() for this rank's elements from `first` on.
  void count_step() noexcept { ++steps_; }
  void apply(std::size_t first, std::span<T> parameters, std::span<const T> gradients) {
    auto memory = slots();
    for (auto& slot : memory) slot = slot.subspan(first, parameters.size());
    rule_(parameters, gradients, memory, steps_);
  }

  [[nodiscard]] Rule& rule() noexcept { return rule_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  void resume(std::uint64_t steps) noexcept {
    steps_ = steps;
    left_ = false;
    if (averaged_) begun_ = averaged_ = false;
  }
  /// Return the rule's memory, one span of this rank's elements for each slot, and its size in bytes.
  [[nodiscard]] std::array<std::span<T>, Rule::slots> slots() noexcept {
    std::array<std::span<T>, Rule::slots> all;
    for (std::size_t s = 0; s < Rule::slots; ++s) all[s] = std::span{memory_}.subspan(s * size_, size_);
    return all;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size() * sizeof(T); }

 private:
  /// Returns true if step() would change parameters; after average().
  [[nodiscard]] bool steps_by_it() const noexcept { return verdict_ == grad::step::apply && total_ > 0; }
  /// Throws error{mismatch}: `ranks` ranks, whose numbers add up to `sum_of_ranks`, have left the last pass.
  template <class Comm>
  [[noreturn]] static void refuse_torn(Comm& world, const char* who, double ranks, double sum_of_ranks) {
    const int one = ranks == 1 ? static_cast<int>(sum_of_ranks) : -1;
    const std::string those =
        one >= 0 ? "rank " + std::to_string(one) : std::to_string(static_cast<int>(ranks)) + " ranks";
    throw error({errc::mismatch, 0, one >= 0 ? world.world_rank(one) : -1, 0},
                std::string(who) + ": " + those +
                    " left the last pass after average() and without step(), as by an exception that was caught, and "
                    "the others took it: parameters are of different steps. All ranks take a step or none does; load "
                    "what was saved last",
                {world.rank(), 0, who, {}});
  }

  Rule rule_;
  std::size_t size_;
  std::vector<T> memory_, gradients_;
  grad::weight_sync weights_{grad::scaling::divided, 1, 1};  // as in a reducer whose hook divides
  double total_ = 0;                                         // sum of all weights in the last pass that was averaged
  grad::step verdict_ = grad::step::apply;
  bool begun_ = false, averaged_ = false;
  bool left_ = false;   // this rank left a pass that it should have ended by a step
  int exceptions_ = 0;  // uncaught exceptions when the pass began
  std::uint64_t steps_ = 0;
};

}  // namespace tutti::train
