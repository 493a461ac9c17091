#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::train {

/// Local SGD (Stich, 2019): every rank steps by its own gradients, and every k steps the parameters become their mean
/// over the ranks. With `warm_up` steps that average every time, it is post-local SGD (Lin et al., 2020). Collective:
/// all ranks construct it with equal arguments and take equally many steps. Holds one copy of the parameters, in memory
/// that peers map. One thread at a time; `world` must outlive it. Cost: the bytes of gradient averaging, divided by k.
template <class Comm>
class local_sgd {
 public:
  /// Prepares for parameters of these shapes. Each of the first `warm_up` steps averages, then every `every`-th one.
  /// Collective; blocks. Errors: usage_error if `every` is 0; else as of grad::reducer.
  local_sgd(Comm& world, std::span<const grad::parameter_shape> shapes, std::uint64_t every, std::uint64_t warm_up = 0,
            std::source_location where = std::source_location::current())
      : copies_(world, shapes, {}, {}, where), every_(every), warm_up_(warm_up) {
    if (every == 0) throw usage_error("local_sgd: average every 0 steps; give at least 1");
  }

  /// Counts a step, and averages the parameters in every k-th; call it after each optimizer step. Collective. Returns
  /// true if it averaged. `parameters` is a list of spans in the order and of the types of `shapes`; list and
  /// parameters must stay valid until the task has ended, and must not be used meanwhile. The mean is weighted by the
  /// sum of `weight` since the last average, such as the number of samples. A rank with weight 0 receives the others'
  /// mean; if all weights are 0, nothing changes. Errors: usage_error for other parameters and for a bad weight, and
  /// the step is not counted then; else as of all_reduce.
  template <class Parameters>
  task<bool> step(const Parameters& parameters, double weight = 1) {
    grad::weight_digits::check(weight);
    check_all(parameters);
    since_ += weight;
    counts_ = true;
    if (++steps_ > warm_up_ && (steps_ - warm_up_) % every_ != 0) co_return false;
    co_await average(parameters);
    co_return true;
  }

  /// Averages the parameters now, for example before an evaluation or a checkpoint. The mean is weighted as in step(),
  /// or unweighted if there was no step since the last average. Collective.
  template <class Parameters>
  task<> average(const Parameters& parameters) {
    return average(parameters, counts_ ? since_ : 1);
  }
  /// Averages with this weight in place of those passed to step(). Collective.
  template <class Parameters>
  task<> average(const Parameters& parameters, double weight) {
    check_all(parameters);
    auto pass = copies_.begin(weight);
    for (std::size_t i = copies_.size(); i-- > 0;) {
      const std::span from{parameters[i]};
      std::copy(from.begin(), from.end(), copy_of(i, from).begin());
      pass.ready(i);
    }
    co_await pass.finish();
    since_ = 0;
    counts_ = false;
    if (copies_.total_weight() == 0) co_return;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const std::span to{parameters[i]};
      const auto mean = copy_of(i, to);
      std::copy(mean.begin(), mean.end(), to.begin());
    }
  }

  /// Returns the number of steps so far; resume() continues from it. Save checkpoints after an average, as the ranks'
  /// parameters differ between averages.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  void resume(std::uint64_t steps) noexcept {
    steps_ = steps;
    since_ = 0;
    counts_ = false;
  }

 private:
  template <class T, std::size_t N>
  [[nodiscard]] std::span<T> copy_of(std::size_t i, std::span<T, N>) const {
    return copies_.template gradient<T>(i);
  }
  template <class Parameters>
  void check_all(const Parameters& parameters) const {
    if (std::size(parameters) != copies_.size())
      throw usage_error("local_sgd: " + std::to_string(std::size(parameters)) + " parameters where there are " +
                        std::to_string(copies_.size()));
    for (std::size_t i = 0; i < copies_.size(); ++i) check(i, std::span{parameters[i]});
  }
  template <class T, std::size_t N>
  void check(std::size_t i, std::span<T, N> p) const {
    if (copy_of(i, p).size() != p.size())
      throw usage_error("local_sgd: parameter " + std::to_string(i) + " has " + std::to_string(p.size()) +
                        " elements, not the " + std::to_string(copy_of(i, p).size()) + " of its shape");
  }

  grad::reducer<Comm> copies_;
  std::uint64_t every_, warm_up_, steps_ = 0;
  double since_ = 0;     // sum of the weights since the last average
  bool counts_ = false;  // there was a step since the last average
};

}  // namespace tutti::train
