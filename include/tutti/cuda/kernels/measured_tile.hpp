#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/arithmetic.hpp>
#include <tutti/cuda/kernels/tile_table.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda {

/// The measure of gradients by one pass, in device memory; the same as train::gradient_measure, also in its layout:
/// ranks that hold parts add their measures.
struct gradient_measure {
  double squares = 0;            ///< the sum of the squares after the pass
  std::uint64_t not_finite = 0;  ///< elements that were infinite or NaN

  friend TUTTI_HOST_DEVICE gradient_measure operator+(const gradient_measure& a, const gradient_measure& b) noexcept {
    return {detail::plus(a.squares, b.squares), a.not_finite + b.not_finite};
  }
};

/// The treatment of measured gradients in a step, as loss_scaler::inspect decides on the host, without asking the host:
/// the step is skipped if a gradient, or the sum of the squares, was not finite; else gradients are multiplied by
/// `inverse_scale` and the factor that clips their norm to `max_norm`. `measured` lies in device memory; if it is null,
/// they are only multiplied.
struct gradient_gate {
  const gradient_measure* measured = nullptr;
  double inverse_scale = 1;  ///< 1 if the measured gradients were unscaled already
  double max_norm = std::numeric_limits<double>::infinity();
};

namespace detail {

struct gate_verdict {
  double factor = 1;
  bool skip = false;
};

TUTTI_HOST_DEVICE inline gate_verdict judge(const gradient_gate& gate) noexcept {
  if (!gate.measured) return {gate.inverse_scale, false};
  const double norm = times(square_root(gate.measured->squares), gate.inverse_scale);
  const double clip = quotient(gate.max_norm, plus(norm, 1e-6));
  const double factor = times(gate.inverse_scale, clip < 1 ? clip : 1.0);
  // An element that was finite before the pass may be infinite after it: only the sum shows that.
  const bool overflow = gate.measured->not_finite != 0 || !finite(gate.measured->squares) || !finite(factor);
  return {factor, overflow};
}

/// The size of a tile in elements, and the threads that measure one, on every device: the order of the sum is that of
/// the elements, at any address, so that equal gradients have equal norms on all ranks.
inline constexpr std::size_t measured_elements = 8192, measuring_threads = 256, adding_threads = 1024;

template <class T>
struct measured_array {
  T* data;
  std::size_t count;
};
template <class T>
using measured_table = tile_table<measured_array<T>>;

constexpr std::uint64_t measured_tiles(std::size_t count) noexcept {
  return (count + measured_elements - 1) / measured_elements;
}

TUTTI_HOST_DEVICE inline double plus_square(double s, float x) noexcept {
  const double wide = x;
  return s + wide * wide;  // the square is exact, fused or not
}
TUTTI_HOST_DEVICE inline double plus_square(double s, double x) noexcept { return plus(s, times(x, x)); }

/// Measures thread `me`'s share of a tile multiplied by `factor`, and stores the products unless that is 1.
template <class T>
TUTTI_HOST_DEVICE gradient_measure measure_share(T* tile, std::size_t count, computed_in<T> factor,
                                                 std::size_t me) noexcept {
  constexpr std::size_t w = 16 / sizeof(T), stride = measuring_threads * w;
  constexpr std::size_t unroll = 4;
  const bool aligned = reinterpret_cast<std::uintptr_t>(tile) % 16 == 0;
  gradient_measure m;
  std::uint32_t not_finite = 0;  // a tile has few
  for (std::size_t at = me * w; at < count; at += unroll * stride) {
    vector<T, w> v[unroll];
    for (std::size_t u = 0; u < unroll; ++u) {
      const std::size_t i = at + u * stride;
      if (aligned && i + w <= count) {
        v[u] = load<w>(tile + i);
      } else {
        for (std::size_t j = 0; j < w; ++j) v[u].lane[j] = i + j < count ? tile[i + j] : T{};
      }
    }
    for (std::size_t u = 0; u < unroll; ++u) {
      for (T& x : v[u].lane) {
        const computed_in<T> before = widen(x);
        not_finite += finite(before) ? 0u : 1u;
        if (factor != 1) x = narrow<T>(times(before, factor));
        m.squares = plus_square(m.squares, widen(x));
      }
      const std::size_t i = at + u * stride;
      if (factor == 1) continue;
      if (aligned && i + w <= count) {
        store<w>(tile + i, v[u]);
      } else {
        for (std::size_t j = 0; j < w && i + j < count; ++j) tile[i + j] = v[u].lane[j];
      }
    }
  }
  m.not_finite = not_finite;
  return m;
}

/// Returns thread `me`'s share of the sum of the tiles' measures.
TUTTI_HOST_DEVICE inline gradient_measure add_share(const gradient_measure* tiles, std::size_t count,
                                                    std::size_t me) noexcept {
  constexpr std::size_t unroll = 8;  // loads in flight
  gradient_measure m;
  for (std::size_t at = me; at < count; at += unroll * adding_threads) {
    gradient_measure some[unroll];
    for (std::size_t u = 0; u < unroll; ++u)
      if (at + u * adding_threads < count) some[u] = tiles[at + u * adding_threads];
    for (const gradient_measure& one : some) m = m + one;
  }
  return m;
}

}  // namespace detail
}  // namespace tutti::cuda
