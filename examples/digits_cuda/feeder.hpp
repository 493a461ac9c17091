#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <tutti/cuda/cuda.hpp>

#include "common/cuda_check.hpp"
#include "digits/batch.hpp"
#include "digits/image_shape.hpp"
#include "digits_cuda/cuda_device.hpp"
#include "digits_cuda/network.hpp"

namespace digits::cuda {

/// Pinned host memory, from which copies to a GPU run asynchronously.
template <class T>
class pinned_array {
 public:
  explicit pinned_array(std::size_t count) : memory_{allocated(count * sizeof(T))} {}
  [[nodiscard]] T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  struct freed {
    void operator()(void* p) const { static_cast<void>(cudaFreeHost(p)); }
  };
  static void* allocated(std::size_t bytes) {
    void* p = nullptr;
    common::cuda_check(cudaMallocHost(&p, bytes), "cudaMallocHost");
    return p;
  }
  std::unique_ptr<void, freed> memory_;
};

/// A copier of batches to the device, in its own stream: copies the next batch while the network computes with this
/// one.
class feeder {
 public:
  feeder(const cuda_device& device, image_shape shape, std::size_t most_images)
      : compute_{device.stream()},
        copies_{device.number()},
        slots_{slot{device, shape.size(), most_images}, slot{device, shape.size(), most_images}} {}

  /// Starts to copy a batch; take() returns batches in the same order. At most two may be in use.
  void bring(const batch<float>& samples) {
    slot& s = slots_[brought_++ % slots_.size()];
    // The host buffer is free once its last copy has ended, the device's once the network has used it.
    common::cuda_check(cudaEventSynchronize(s.copied.native()), "cudaEventSynchronize");
    std::copy(samples.pixels.begin(), samples.pixels.end(), s.host_pixels.data());
    std::copy(samples.labels.begin(), samples.labels.end(), s.host_labels.data());
    s.used.join(copies_.native());
    copy(s.pixels.data(), s.host_pixels.data(), samples.pixels.size() * sizeof(float));
    copy(s.labels.data(), s.host_labels.data(), samples.labels.size());
    s.copied.record(copies_.native());
    s.images = samples.size();
  }
  /// Returns the oldest batch, and makes work that is issued to the device's stream from now on wait for its copy.
  device_batch take() {
    const slot& s = slots_[taken_ % slots_.size()];
    s.copied.join(compute_);
    return {s.pixels.data(), s.labels.data(), s.images};
  }
  /// Frees the batch that was taken once the work issued to the device's stream so far has ended.
  void done() { slots_[taken_++ % slots_.size()].used.record(compute_); }

 private:
  struct slot {
    slot(const cuda_device& device, std::size_t pixels_each, std::size_t most_images)
        : host_pixels{pixels_each * most_images},
          host_labels{most_images},
          pixels{device, pixels_each * most_images},
          labels{device, most_images},
          copied{device.number()},
          used{device.number()} {}
    pinned_array<float> host_pixels;
    pinned_array<std::uint8_t> host_labels;
    cuda_device::array<float> pixels;
    cuda_device::array<std::uint8_t> labels;
    tutti::cuda::event copied, used;
    std::size_t images = 0;
  };

  void copy(void* to, const void* from, std::size_t bytes) {
    common::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copies_.native()), "cudaMemcpyAsync");
  }

  cudaStream_t compute_;
  tutti::cuda::stream copies_;
  std::array<slot, 2> slots_;
  std::size_t brought_ = 0, taken_ = 0;
};

}  // namespace digits::cuda
