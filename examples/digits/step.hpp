#pragma once

#include <cstddef>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

namespace digits {

/// How the gradients of all ranks become one step of the parameters: what --zero, --adasum, --scaler and --compress
/// choose. Every rank makes the same calls in the same order.
template <class T>
class step_policy {
 public:
  step_policy() = default;
  step_policy(const step_policy&) = delete;
  step_policy& operator=(const step_policy&) = delete;
  virtual ~step_policy() = default;

  /// Where the backward pass leaves this rank's gradients: sums over its images, one for each tensor.
  virtual std::span<const std::span<T>> gradients() = 0;
  /// What it multiplies the loss by.
  virtual double loss_scale() const { return 1; }

  /// Begins a step to which this rank contributes so many images.
  virtual void begin(std::size_t images) = 0;
  /// The gradient of tensor `i` is complete: it may travel while the others are computed.
  virtual void ready(std::size_t i) = 0;
  /// Ends when every rank has the new parameters; or the old ones, where all skip the step.
  virtual tutti::task<> finish(double rate) = 0;

  /// The momentum of all parameters, wherever it lies, for a checkpoint, and back.
  virtual tutti::task<std::vector<T>> velocity() = 0;
  virtual void set_velocity(std::span<const T> all) = 0;
};

}  // namespace digits
