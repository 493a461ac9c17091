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

/// How a loss scale moves. The defaults are torch's, within Apex's upper bound and a lower bound of 1. Whatever the
/// bounds, the scale stays a normal number, at least 2^-126: torch's goes on to 0, after which gradients are NaN.
struct loss_scaler_options {
  float initial = 0x1p16f;
  float growth = 2;               ///< multiplies the scale after `interval` clean steps in a row
  float backoff = 0.5f;           ///< multiplies it after an overflow
  std::uint32_t interval = 2000;  ///< clean steps
  float least = 1, most = 0x1p24f;

  /// torch.amp.GradScaler: no bounds but the normal numbers of float32.
  static constexpr loss_scaler_options torch() noexcept {
    return {.least = 0, .most = (std::numeric_limits<float>::max)()};
  }
  /// apex.amp's LossScaler: at most 2^24, no lower bound but that.
  static constexpr loss_scaler_options apex() noexcept { return {.least = 0}; }
};

/// All that a loss_scaler remembers; to be saved.
struct loss_scaler_state {
  float scale = 0;
  std::uint32_t clean_steps = 0;  ///< since the last change of the scale

  friend constexpr bool operator==(const loss_scaler_state&, const loss_scaler_state&) = default;
};

/// What is to be done with gradients of a scaled loss.
struct unscaling {
  double norm = 0;        ///< of the gradients without the scale, before they are clipped
  double factor = 1;      ///< takes the scale off and clips; NaN where the norm is no finite number
  bool overflow = false;  ///< some element, the norm or the factor is infinite or NaN: skip the step
};

/// Dynamic loss scaling: multiply the loss by scale(), reduce the gradients, unscale() them, step unless they
/// overflowed, update(). A value; all ranks hold equal ones and change them alike, as reduced gradients are equal on
/// all ranks: an infinity on one is one on all. Gradients that are cut among ranks: agree().
class loss_scaler {
 public:
  /// Errors: usage_error for options with which the scale could not move.
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

  /// Looks at reduced gradients (a grad::reducer, or a range of spans) in one pass and leaves them as they are: an
  /// optimizer that multiplies by `factor` itself needs no other. `max_norm` is that of the gradients without the
  /// scale. Errors: usage_error for one that is negative or NaN.
  template <class Gradients>
  [[nodiscard]] unscaling inspect(const Gradients& gradients,
                                  double max_norm = std::numeric_limits<double>::infinity()) const {
    return judge(measure(gradients), max_norm);
  }
  /// The same for gradients of which each rank holds a part, such as the shard of a sharded optimizer: all ranks get
  /// the norm of the whole, and all skip where one overflowed. Collective; one all_reduce of 16 bytes. `world` and the
  /// gradients must outlive the task.
  template <class Comm, class Gradients>
  task<unscaling> agree(Comm& world, const Gradients& shard,
                        double max_norm = std::numeric_limits<double>::infinity()) const {
    (void)clip_factor(0, max_norm);  // refuses it before anything is sent
    co_return judge(co_await world.all_reduce(measure(shard), std::plus<>{}), max_norm);
  }

  /// Takes the scale off and clips to `max_norm`: one pass that reads, one that writes; none that writes after an
  /// overflow. Errors: usage_error for gradients of float16, where what the scale has saved would be lost: inspect()
  /// them, and multiply by `factor` in the type of the parameters.
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

  /// Moves the scale; once per step, whether it was taken or skipped.
  void update(const unscaling& step) noexcept {
    if (step.overflow) {
      state_ = {(std::max)(options_.least, state_.scale * options_.backoff), 0};
    } else if (++state_.clean_steps >= options_.interval) {
      const float grown = state_.scale * options_.growth;
      state_ = {std::isfinite(grown) ? (std::min)(options_.most, grown) : state_.scale, 0};
    }
  }

  [[nodiscard]] const loss_scaler_state& state() const noexcept { return state_; }
  /// A scale beyond this scaler's bounds becomes the nearest within. Errors: usage_error for one that is not a positive
  /// number.
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
