#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <tutti/grad/plan.hpp>

/// The exchanges: classes by which ranks combine their gradients. All of them have:
///   rank(), size()
///   broadcast(parameters)   broadcasts from rank 0
///   gradients()             returns a span per tensor, to which the backward pass writes sums over the rank's samples
///   begin(samples)          begins a backward pass over this number of samples
///   ready(i)                marks the gradient of tensor i as complete
///   finish(loss)            takes the sum of the loss over the rank's samples, and returns the mean loss; gradients()
///                           are means over the samples of all ranks then
namespace trainers {

/// Gradients as one array in ordinary memory, followed by the loss and the number of samples, so that a step takes one
/// all_reduce, as in trainers on MPI. `All` is `void(std::span<float>)`, which sums an array over the ranks.
class whole_array {
 public:
  explicit whole_array(std::span<const tutti::grad::parameter_shape> shapes) {
    std::size_t total = 0;
    for (const auto& shape : shapes) total += shape.count;
    memory_.resize(total + 2);
    for (std::size_t at = 0; const auto& shape : shapes) {
      tensors_.push_back(std::span{memory_}.subspan(at, shape.count));
      at += shape.count;
    }
  }

  std::span<const std::span<float>> gradients() const { return tensors_; }
  void begin(double samples) { memory_.back() = static_cast<float>(samples); }

  template <class All>
  double finish(double loss, All all_reduce) {
    memory_[memory_.size() - 2] = static_cast<float>(loss);
    all_reduce(std::span{memory_});
    const float samples = memory_.back();
    for (float& x : memory_) x /= samples;
    return static_cast<double>(memory_[memory_.size() - 2]);
  }

 private:
  std::vector<float> memory_;
  std::vector<std::span<float>> tensors_;
};

}  // namespace trainers
