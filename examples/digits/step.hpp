#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

#include <tutti/train/loss_scaler.hpp>

#include "digits/model.hpp"
#include "digits/options.hpp"

namespace digits {

/// The policy by which the gradients of all ranks become one step of the parameters, chosen by --zero, --adasum,
/// --scaler, --shards and --compress. Collective: every rank makes the same calls in the same order.
template <class T>
class step_policy {
 public:
  explicit step_policy(const options& wanted) {
    if (wanted.scale_loss) scaler_.emplace();
  }
  step_policy(const step_policy&) = delete;
  step_policy& operator=(const step_policy&) = delete;
  virtual ~step_policy() = default;

  /// Returns the buffers to which the backward pass writes this rank's gradients, one for each tensor: sums over its
  /// images.
  virtual std::span<const std::span<T>> gradients() = 0;
  /// Returns the factor by which the backward pass multiplies the loss.
  double loss_scale() const { return scaler_ ? static_cast<double>(scaler_->scale()) : 1; }

  /// The parts of a step's images that this rank computes, one after another: [first, end) of `parts`.
  struct share {
    std::size_t first, end, parts;
  };
  virtual share parts() const = 0;
  /// Returns the mode in which the backward passes after the first part write gradients.
  virtual gradient_mode later_parts() const { return gradient_mode::accumulate; }
  /// Ends a part that another one follows.
  virtual void next_part() {}

  /// Begins a step to which this rank contributes `images` images.
  virtual void begin(std::size_t images) = 0;
  /// Marks the gradient of tensor `i` as complete: it may be reduced while others are computed.
  virtual void ready(std::size_t i) = 0;
  /// Updates the parameters, on all ranks, or skips the step on all.
  virtual tutti::task<> finish(double rate) = 0;

  /// Return the velocity of all parameters, for a checkpoint, and set it. velocity() is collective.
  virtual tutti::task<std::vector<T>> velocity() = 0;
  virtual void set_velocity(std::span<const T> all) = 0;
  /// Return the loss scale and the steps without an overflow since it changed, and set them; zeros stand for a loss
  /// that is not scaled.
  std::array<T, 2> scaler() const {
    if (!scaler_) return {};
    return {static_cast<T>(scaler_->state().scale), static_cast<T>(scaler_->state().clean_steps)};
  }
  void set_scaler(const std::array<T, 2>& from) {
    if (scaler_ && from[0] != 0) scaler_->resume({static_cast<float>(from[0]), static_cast<std::uint32_t>(from[1])});
  }

 protected:
  std::optional<tutti::train::loss_scaler> scaler_;  // with --scaler
};

/// Returns this rank's parts with --accumulate, which is the number of parts on each rank.
template <class T>
typename step_policy<T>::share parts_of(const options& wanted, const tutti::communicator<>& world) {
  const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  return {rank * wanted.accumulate, (rank + 1) * wanted.accumulate, ranks * wanted.accumulate};
}

}  // namespace digits
