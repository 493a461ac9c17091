#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/train/gradient_norm.hpp>

namespace tutti::train {

/// The options of a loss_scaler. The defaults are torch's, with Apex's upper bound and a lower bound of 1. With any
/// bounds, the scale stays a normal number, at least 2^-126; torch's may become 0, after which gradients are NaN.
struct loss_scaler_options {
  float initial = 0x1p16f;
  float growth = 2;               ///< factor after `interval` steps without an overflow
  float backoff = 0.5f;           ///< factor after an overflow
  std::uint32_t interval = 2000;  ///< steps
  float least = 1, most = 0x1p24f;

  /// Returns the options of torch.amp.GradScaler: no bounds but the normal numbers of float32.
  static constexpr loss_scaler_options torch() noexcept {
    return {.least = 0, .most = (std::numeric_limits<float>::max)()};
  }
  /// Returns the options of apex.amp's LossScaler: at most 2^24, no lower bound but the normal numbers.
  static constexpr loss_scaler_options apex() noexcept { return {.least = 0}; }
};

/// The state of a loss_scaler, to be saved with a checkpoint.
struct loss_scaler_state {
  float scale = 0;
  std::uint32_t clean_steps = 0;  ///< steps without an overflow since the last change of the scale

  friend constexpr bool operator==(const loss_scaler_state&, const loss_scaler_state&) = default;
};

/// The treatment of the gradients of a scaled loss.
struct unscaling {
  double norm = 0;        ///< norm of the unscaled gradients before clipping
  double factor = 1;      ///< unscales and clips; NaN if the norm is infinite or NaN
  bool overflow = false;  ///< an element, the norm or the factor is infinite or NaN: skip the step
};

/// A dynamic loss scale for training in 16 bits: multiply the loss by scale(), reduce the gradients, unscale() them,
/// step unless they overflowed, and update(). A value, which sends nothing except in agree(). Its state stays equal on
/// all ranks because reduced gradients are equal: an infinity on one rank is one on all. For gradients that are sharded
/// over the ranks, call agree() in place of unscale().
class loss_scaler {
 public:
  /// Starts with the initial scale, limited to the bounds. Errors: usage_error for options outside of their ranges.
  explicit loss_scaler(loss_scaler_options options = {}) : options_(options) {
    if (!(options.growth > 1) || !(options.backoff > 0 && options.backoff < 1) || options.interval == 0 ||
        !(options.least >= 0 && options.least <= options.most) || !std::isfinite(options.most) ||
        !(options.most >= smallest) || !(options.initial > 0))
      throw usage_error(
          "loss_scaler: give growth > 1, 0 < backoff < 1, interval > 0, initial > 0, 0 <= least <= most, most finite "
          "and >= "
          "2^-126");
    options_.least = (std::max)(options.least, smallest);
    state_.scale = std::clamp(options.initial, options_.least, options.most);
  }

  [[nodiscard]] float scale() const noexcept { return state_.scale; }

  /// Measures reduced gradients (a grad::reducer, or a range of spans) in one pass without changing them, for
  /// optimizers that multiply by `factor` themselves. `max_norm` limits the norm of the unscaled gradients. Errors:
  /// usage_error if it is negative or NaN.
  template <class Gradients>
  [[nodiscard]] unscaling inspect(const Gradients& gradients,
                                  double max_norm = std::numeric_limits<double>::infinity()) const {
    return judge(measure(gradients), max_norm);
  }
  /// Measures gradients that are sharded over the ranks, such as those of a sharded optimizer. All ranks get equal
  /// results: the norm of the whole, and an overflow if a rank has one. Collective; one all_reduce of 16 bytes. `world`
  /// and the gradients must outlive the task. Errors: as of inspect() and all_reduce.
  template <class Comm, class Gradients>
  task<unscaling> agree(Comm& world, const Gradients& shard,
                        double max_norm = std::numeric_limits<double>::infinity()) const {
    (void)clip_factor(0, max_norm);  // throws for a bad max_norm before anything is sent
    co_return judge(co_await world.all_reduce(measure(shard), std::plus<>{}), max_norm);
  }

  /// Unscales reduced gradients and clips them to `max_norm`. Takes a pass that reads, and one that writes unless they
  /// overflowed. Errors: as of inspect(); usage_error for gradients of float16, which would underflow again without
  /// their scale: inspect() them, and multiply by `factor` in the type of the parameters.
  template <class Gradients>
  unscaling unscale(Gradients&& gradients, double max_norm = std::numeric_limits<double>::infinity()) const {
    for_each_gradient(gradients, []<class T, std::size_t N>(std::span<T, N>) {
      if constexpr (std::same_as<T, float16>)
        throw usage_error("loss_scaler: float16 cannot hold gradients without their scale; inspect() them");
    });
    const unscaling u = inspect(gradients, max_norm);
    if (!u.overflow) scale_gradients(gradients, u.factor);
    return u;
  }

  /// Adapts the scale. Call it once per step, whether that was taken or skipped.
  void update(const unscaling& step) noexcept {
    if (step.overflow) {
      state_ = {(std::max)(options_.least, state_.scale * options_.backoff), 0};
    } else if (++state_.clean_steps >= options_.interval) {
      const float grown = state_.scale * options_.growth;
      state_ = {std::isfinite(grown) ? (std::min)(options_.most, grown) : state_.scale, 0};
    }
  }

  [[nodiscard]] const loss_scaler_state& state() const noexcept { return state_; }
  /// Continues from a saved state; a scale outside of this scaler's bounds becomes the nearest one within. Errors:
  /// usage_error for a scale that is not finite and positive.
  void resume(const loss_scaler_state& from) {
    if (!(from.scale > 0) || !std::isfinite(from.scale))
      throw usage_error("loss_scaler: resumed with a scale of " + std::to_string(from.scale) +
                        "; give one that is finite and above 0");
    state_ = {std::clamp(from.scale, options_.least, options_.most), from.clean_steps};
  }

 private:
  static constexpr float smallest = (std::numeric_limits<float>::min)();

  [[nodiscard]] unscaling judge(const gradient_measure& scaled, double max_norm) const {
    const double inverse = 1.0 / static_cast<double>(state_.scale);
    const double norm = scaled.norm() * inverse;
    const double factor = inverse * clip_factor(norm, max_norm);
    return {norm, factor, !scaled.finite() || !std::isfinite(norm) || !std::isfinite(factor)};
  }

  loss_scaler_options options_;
  loss_scaler_state state_;
};

}  // namespace tutti::train
