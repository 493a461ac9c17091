#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include <support/kernels_on_host.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/runtime.hpp>

/// What tests on a GPU need, without doctest, which nvcc takes long to read.
namespace on_gpu {

inline int failures = 0, checks = 0;

inline void expect(bool good, const char* what, const char* type, std::size_t count, std::size_t skip) {
  ++checks;
  if (good) return;
  if (++failures <= 20) std::printf("FAILED: %s of %s, %zu elements, %zu beyond alignment\n", what, type, count, skip);
}
inline void must(::cudaError_t e) {
  tutti::cuda::check<tutti::cuda::runtime>(static_cast<tutti::cuda::result>(e), "a call of the test", 0);
}

template <class T>
const char* type_name() {
  return tutti::name(tutti::dtype_of<T>()).data();
}

// Equal bits, or both NaN.
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      if (x == x || y == y) return false;
    }
  return true;
}

// Memory of the device, `skip` elements beyond alignment; poisoned, also around, where it must stay so.
template <class T>
class array {
 public:
  array(std::size_t count, std::size_t skip) : count_(count), skip_(skip) {
    must(::cudaMalloc(&memory_, bytes()));
    must(::cudaMemset(memory_, 0xab, bytes()));
    must(::cudaDeviceSynchronize());  // the stream of the kernels does not wait for the default one
  }
  array(const std::vector<T>& v, std::size_t skip) : array(v.size(), skip) {
    must(::cudaMemcpy(data(), v.data(), count_ * sizeof(T), ::cudaMemcpyHostToDevice));
    must(::cudaDeviceSynchronize());
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  ~array() { static_cast<void>(::cudaFree(memory_)); }

  T* data() const { return static_cast<T*>(memory_) + 16 + skip_; }
  tutti::cuda::device_span<T> span() const { return {data(), count_}; }
  tutti::cuda::device_span<const T> view() const { return {data(), count_}; }
  std::vector<T> get() const {
    must(::cudaDeviceSynchronize());
    std::vector<T> v(count_);
    must(::cudaMemcpy(v.data(), data(), count_ * sizeof(T), ::cudaMemcpyDeviceToHost));
    std::vector<unsigned char> all(bytes());
    must(::cudaMemcpy(all.data(), memory_, bytes(), ::cudaMemcpyDeviceToHost));
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>((16 + skip_) * sizeof(T)), count_ * sizeof(T),
                static_cast<unsigned char>(0xab));
    expect(std::all_of(all.begin(), all.end(), [](unsigned char c) { return c == 0xab; }), "memory around a result",
           type_name<T>(), count_, skip_);
    return v;
  }

 private:
  std::size_t bytes() const { return (count_ + skip_ + 32) * sizeof(T); }
  std::size_t count_, skip_;
  void* memory_ = nullptr;
};

template <class T>
std::vector<T> random(std::size_t count, std::uint64_t seed, bool any = false) {
  on_host::numbers n{seed};
  std::vector<T> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(T(any ? n.any() : n.ordinary()));
  return v;
}

}  // namespace on_gpu
