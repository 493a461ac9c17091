#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/grad/device_reducer.hpp>

#include "common/gradient_shapes.hpp"
#include "digits_cuda/cuda_device.hpp"
#include "digits_cuda/network.hpp"

namespace digits::cuda {

/// A device reducer of the gradients, and of the loss behind them: averages over the images of all ranks, some layers
/// at a time, while the gradients of the layers before are computed.
class gradient_exchange {
 public:
  gradient_exchange(tutti::communicator<tutti::nccl>& gpus, tutti::communicator<>& world, const model<float>& net,
                    cudaStream_t compute)
      : reducer_{gpus, world, shapes(net), {.limits = {.first_bytes = 16 << 10, .cap_bytes = 128 << 10}}},
        compute_{compute} {}

  /// Returns the device addresses to which the network writes gradients and loss.
  [[nodiscard]] network<cuda_device>::gradient_places places() const {
    network<cuda_device>::gradient_places all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = reducer_.gradient<float>(i).data();
    return all;
  }

  /// Begins a step to which this rank contributes `images` images.
  void begin(std::size_t images) {
    pass_.emplace(reducer_.begin(static_cast<double>(images), compute_, tutti::grad::contribution::sum));
  }
  /// Marks the gradient of tensor i as issued to the stream; network::backward() calls it.
  void ready(std::size_t i) { pass_->ready(i); }
  /// Makes work that is issued to the stream from now on wait for the means. The host does not wait.
  void finish() {
    auto pass = std::move(*pass_);
    pass_.reset();
    static_cast<void>(pass.finish().join(compute_));
  }

 private:
  using reducer = tutti::grad::device_reducer<tutti::communicator<tutti::nccl>, tutti::communicator<>>;

  static std::vector<tutti::grad::parameter_shape> shapes(const model<float>& net) {
    auto all = common::gradient_shapes<float>(net);
    all.push_back({"loss", 1, tutti::dtype::f32});
    return all;
  }

  reducer reducer_;
  cudaStream_t compute_;
  std::optional<reducer::pass_type> pass_;
};

}  // namespace digits::cuda
