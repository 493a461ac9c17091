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

/// What a rank has of a step that is divided among ranks: a rule, what it remembers for this rank's elements, and in a
/// pass the sums of their gradients with the weight that this rank's gradients count for. Under sharded_optimizer and
/// sharded_parameters. Memory: slots of the rule times the elements, and once more from the first begin() on.
template <std::floating_point T, update_rule<T> Rule>
class shard_state {
 public:
  shard_state(std::size_t elements, Rule rule) : rule_(rule), size_(elements), memory_(elements * Rule::slots) {}

  /// Collective: starts an all_reduce of 56 bytes, by which ranks learn each other's weights. Errors: usage_error for a
  /// bad weight, which changes nothing.
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
  /// In a destructor: whether the others would wait for this rank. After average() only an exception tells: what all
  /// ranks know there, such as an overflow, they may well leave without a step.
  [[nodiscard]] bool broken_off() const noexcept {
    return begun_ && (!averaged_ || std::uncaught_exceptions() > exceptions_);
  }
  /// Returns the factor of this rank's gradients before the sum: 1 on all ranks that have a weight if the weights are
  /// equal. Waits until all ranks have begun.
  [[nodiscard]] double scale() {
    if (!weights_.template settled<T>()) weights_.template settle<T>();
    return weights_.template before<T>();
  }
  /// Ends when all ranks have begun; scale() does not wait then.
  task<> all_begun() {
    if (auto weights = weights_.take_collective()) {
      co_await *std::move(weights);
      weights_.heard();
    }
  }
  /// Sums; means from average() on.
  [[nodiscard]] std::span<T> gradients() noexcept { return gradients_; }
  [[nodiscard]] std::span<const T> gradients() const noexcept { return gradients_; }

  /// No rank is to step by this pass. Errors: usage_error outside a pass, after average(), and for grad::step::apply.
  void skip(grad::step why, const char* who) {
    if (why == grad::step::apply || !begun_ || averaged_)
      throw usage_error(std::string(who) + ": skip() says why, between begin() and average()");
    verdict_ = why > verdict_ ? why : verdict_;
  }
  /// Collective: an all_reduce of 24 bytes, with which all ranks learn whether one skips; then the sums stay as they
  /// are. Where all weights are 0, the mean is 0. Again in the same pass it sends nothing, and
  /// its result is the same. Errors: error{mismatch} on all ranks where some, but not all, have left the last pass
  /// after average() and without its step, as by an exception that was caught: their parts are of another step. So
  /// does each later one, until resume().
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
      grad::divide(std::span{gradients_}, weights_.template divisor<T>() * weights_.template after<T>());
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
    if (!steps_by_it()) return false;
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
  void resume(std::uint64_t steps) noexcept {
    steps_ = steps;
    left_ = false;
    if (averaged_) begun_ = averaged_ = false;
  }
  /// What the rule remembers, slot by slot, and its bytes.
  [[nodiscard]] std::array<std::span<T>, Rule::slots> slots() noexcept {
    std::array<std::span<T>, Rule::slots> all;
    for (std::size_t s = 0; s < Rule::slots; ++s) all[s] = std::span{memory_}.subspan(s * size_, size_);
    return all;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size() * sizeof(T); }

 private:
  /// Whether step() would do anything; after average().
  [[nodiscard]] bool steps_by_it() const noexcept { return verdict_ == grad::step::apply && total_ > 0; }
  /// `ranks` of them have left, whose numbers add up to `sum_of_ranks`.
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
  grad::weight_sync weights_{grad::scaling::divided, 1, 1};  // as of a reducer whose hook divides
  double total_ = 0;                                         // of the last pass that was averaged
  grad::step verdict_ = grad::step::apply;
  bool begun_ = false, averaged_ = false;
  bool left_ = false;   // the last pass, which this rank could have ended with a step
  int exceptions_ = 0;  // under way as the pass began
  std::uint64_t steps_ = 0;
};

}  // namespace tutti::train
