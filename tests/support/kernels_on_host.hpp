#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tutti/cuda/kernels/measured_tile.hpp>
#include <tutti/cuda/kernels/sweep.hpp>

/// The code of the device's kernels, with a loop where the device has threads.
namespace on_host {

/// All threads of a kernel of elements.
template <class F>
void sweep_all(const F& f, std::size_t count, std::size_t threads = 64) {
  for (std::size_t me = 0; me < threads; ++me)
    tutti::cuda::detail::sweep<F::width, F::unroll>(f, count, f.cut_all(count), me, threads);
}

/// The sum of a block: lanes of a warp, then warps.
inline tutti::cuda::gradient_measure tree_sum(std::vector<tutti::cuda::gradient_measure> shares) {
  const auto fold = [](std::span<tutti::cuda::gradient_measure> s) {
    for (std::size_t half = s.size() / 2; half != 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) s[i] = s[i] + s[i + half];
    return s[0];
  };
  std::vector<tutti::cuda::gradient_measure> warps;
  for (std::size_t w = 0; w < shares.size(); w += 32) warps.push_back(fold(std::span{shares}.subspan(w, 32)));
  return fold(warps);
}

/// What unscale() does to gradients and finds, to the bit.
template <class T>
tutti::cuda::gradient_measure unscale(std::span<const std::span<T>> gradients, double factor) {
  namespace detail = tutti::cuda::detail;
  std::vector<tutti::cuda::gradient_measure> tiles;
  for (const std::span<T>& g : gradients)
    for (std::size_t at = 0; at < g.size(); at += detail::measured_elements) {
      const std::size_t n = g.size() - at < detail::measured_elements ? g.size() - at : detail::measured_elements;
      std::vector<tutti::cuda::gradient_measure> shares;
      for (std::size_t me = 0; me < detail::measuring_threads; ++me)
        shares.push_back(detail::measure_share(g.data() + at, n, static_cast<detail::computed_in<T>>(factor), me));
      tiles.push_back(tree_sum(shares));
    }
  std::vector<tutti::cuda::gradient_measure> shares;
  for (std::size_t me = 0; me < detail::adding_threads; ++me)
    shares.push_back(detail::add_share(tiles.data(), tiles.size(), me));
  return tree_sum(shares);
}

/// A small generator of floats of all kinds: of size one, of any exponent, zeros, infinities and NaNs.
class numbers {
 public:
  explicit numbers(std::uint64_t seed) : state_(seed * 2654435761u + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  float ordinary() { return static_cast<float>(static_cast<std::int32_t>(bits())) * 0x1p-31f; }
  float any() {
    const std::uint32_t b = bits();
    float x;
    std::memcpy(&x, &b, sizeof x);
    return x;
  }

 private:
  std::uint64_t state_;
};

}  // namespace on_host
