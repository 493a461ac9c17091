#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/tutti.hpp>

#include "digits_cuda/cuda_device.hpp"
#include "digits_cuda/network.hpp"

namespace digits::cuda {

/// Adds up the gradients of all ranks, some layers at a time, while those of the layers before are computed.
class gradient_exchange {
 public:
  gradient_exchange(tutti::communicator<tutti::nccl>& gpus, network<cuda_device>& net, cudaStream_t compute)
      : gpus_{gpus}, net_{net}, compute_{compute} {}

  /// The gradient of tensor i is in the stream: network::backward() says so, last tensor first.
  void ready(std::size_t i) {
    for (const bucket b : buckets)
      if (b.first == i) reduce(b);
  }
  /// What is given to the stream from now on finds the sums of all ranks; the host does not wait for them.
  void finish() {
    for (auto& one : flights_) std::move(one).join(compute_);
    flights_.clear();
  }

 private:
  /// From tensor `first` up to, not including, `end`.
  struct bucket {
    std::size_t first, end;
  };
  // The last one brings the loss, which lies behind the gradients.
  static constexpr std::array<bucket, 3> buckets{{{0, 4}, {4, 6}, {6, network<cuda_device>::tensor_count}}};

  void reduce(bucket b) {
    const auto all = net_.gradients();
    const std::size_t first = net_.tensor(b.first).first;
    const std::size_t end = b.end == network<cuda_device>::tensor_count ? all.size() : net_.tensor(b.end).first;
    const tutti::cuda::device_span<float> part{all.data() + first, end - first};
    flights_.push_back(gpus_.all_reduce(part, tutti::sum, {.stream = compute_}));
  }

  tutti::communicator<tutti::nccl>& gpus_;
  network<cuda_device>& net_;
  cudaStream_t compute_;
  std::vector<tutti::communicator<tutti::nccl>::backend_type::op_type> flights_;
};

}  // namespace digits::cuda
