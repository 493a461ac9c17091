#pragma once
#include <cuda_runtime_api.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "gpu/programs/ranks.hpp"

namespace gpu_test {

/// Small integers, whose sums and products over a few ranks are exact in every type and order.
template <class T>
T operand(int rank, std::size_t i) {
  const auto x = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5 % 3);
  if constexpr (std::is_same_v<T, bool>)
    return x > 1;
  else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
    return T{static_cast<typename T::value_type>(x), 1};
  else
    return static_cast<T>(x);
}

/// The same elements on the host and on the device.
template <class T>
class both {
 public:
  enum class filled { operands, poison };

  both(int device, int rank, std::size_t count, filled with)
      : count_(count), host_(std::make_unique<T[]>(count)), device_(device, std::max<std::size_t>(count, 1)) {
    if (with == filled::poison)
      std::memset(static_cast<void*>(host_.get()), std::is_same_v<T, bool> ? 1 : 0x5a, count * sizeof(T));
    else
      for (std::size_t i = 0; i < count; ++i) host_[i] = operand<T>(rank, i);
    check(cudaMemcpy(device_.span().data(), host_.get(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  [[nodiscard]] std::span<T> on_host() const { return {host_.get(), count_}; }
  [[nodiscard]] tutti::cuda::device_span<T> on_device() const { return device_.span().first(count_); }
  /// How many bytes differ.
  [[nodiscard]] std::size_t differences() const {
    const auto copy = std::make_unique<T[]>(count_);
    check(cudaMemcpy(copy.get(), device_.span().data(), count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const auto* a = reinterpret_cast<const unsigned char*>(copy.get());
    const auto* b = reinterpret_cast<const unsigned char*>(host_.get());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count_ * sizeof(T); ++i) wrong += a[i] != b[i];
    return wrong;
  }

 private:
  std::size_t count_;
  std::unique_ptr<T[]> host_;
  tutti::cuda::device_memory<T> device_;
};

/// Makes each call on the host's world and on the GPUs', and compares what comes out.
class comparison {
 public:
  comparison(host_communicator& world, gpu_communicator& gpus) : world_(world), gpus_(gpus) {}

  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(world_.size()); }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] int wrong() const { return wrong_; }

  /// call(world, in, out) begins the operation; its input has `in` elements, its output `out`.
  template <class T, class Call>
  void run(const std::string& what, std::size_t in, std::size_t out, Call call) {
    const int device = gpus_.backend().device();
    const both<T> from{device, rank(), in, both<T>::filled::operands}, to{device, rank(), out, both<T>::filled::poison};
    call(world_, from.on_host(), to.on_host()).wait();
    call(gpus_, from.on_device(), to.on_device()).wait();
    judge(what, from.differences() + to.differences());
  }
  void judge(const std::string& what, std::size_t wrong_bytes) {
    ++calls_;
    if (wrong_bytes == 0) return;
    if (++wrong_ <= 20)
      std::printf("wrong on rank %d of %zu: %s: %zu bytes differ from the host's\n", rank(), ranks(), what.c_str(),
                  wrong_bytes);
  }

 private:
  host_communicator& world_;
  gpu_communicator& gpus_;
  int calls_ = 0, wrong_ = 0;
};

}  // namespace gpu_test
