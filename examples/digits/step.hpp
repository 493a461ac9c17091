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

/// How the gradients of all ranks become one step of the parameters: what --zero, --adasum, --scaler, --shards
/// and --compress choose. Every rank makes the same calls in the same order.
template <class T>
class step_policy {
 public:
  explicit step_policy(const options& wanted) {
    if (wanted.scale_loss) scaler_.emplace();
  }
  step_policy(const step_policy&) = delete;
  step_policy& operator=(const step_policy&) = delete;
  virtual ~step_policy() = default;

  /// Where the backward pass leaves this rank's gradients: sums over its images, one for each tensor.
  virtual std::span<const std::span<T>> gradients() = 0;
  /// What it multiplies the loss by.
  double loss_scale() const { return scaler_ ? static_cast<double>(scaler_->scale()) : 1; }

  /// A step's images are cut into so many parts, of which this rank computes some, one after another.
  struct share {
    std::size_t first, end, parts;
  };
  virtual share parts() const = 0;
  /// What the backward pass of the second part and those after it does with the gradients.
  virtual gradient_mode later_parts() const { return gradient_mode::accumulate; }
  /// A part is complete, and another one follows.
  virtual void next_part() {}

  /// Begins a step to which this rank contributes so many images.
  virtual void begin(std::size_t images) = 0;
  /// The gradient of tensor `i` is complete: it may travel while the others are computed.
  virtual void ready(std::size_t i) = 0;
  /// Ends when every rank has the new parameters; or the old ones, where all skip the step.
  virtual tutti::task<> finish(double rate) = 0;

  /// The momentum of all parameters, wherever it lies, for a checkpoint, and back.
  virtual tutti::task<std::vector<T>> velocity() = 0;
  virtual void set_velocity(std::span<const T> all) = 0;
  /// The loss scale and the clean steps since it moved, and back; zeros where the loss is not scaled, or was not.
  std::array<T, 2> scaler() const {
    if (!scaler_) return {};
    return {static_cast<T>(scaler_->state().scale), static_cast<T>(scaler_->state().clean_steps)};
  }
  void set_scaler(const std::array<T, 2>& from) {
    if (scaler_ && from[0] != 0) scaler_->resume({static_cast<float>(from[0]), static_cast<std::uint32_t>(from[1])});
  }

 protected:
  std::optional<tutti::train::loss_scaler> scaler_;  // of --scaler
};

/// --accumulate: so many parts on each rank.
template <class T>
typename step_policy<T>::share parts_of(const options& wanted, const tutti::communicator<>& world) {
  const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  return {rank * wanted.accumulate, (rank + 1) * wanted.accumulate, ranks * wanted.accumulate};
}

}  // namespace digits
