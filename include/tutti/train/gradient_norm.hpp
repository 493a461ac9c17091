#pragma once
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::train {

/// A type that gradients have.
template <class T>
concept gradient_element =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// Calls `f(std::span<T>)` for every gradient of a grad::reducer, in the order of its buckets and of any types, of a
/// range of spans, or for a single span. The span of a gradient that no rank used in the reducer's last pass
/// (reducer::used()) is empty: its memory holds a value of an earlier pass.
template <class Gradients, class F>
void for_each_gradient(Gradients&& gradients, F f) {
  if constexpr (requires { gradients.layout().buckets; }) {
    for (const grad::bucket& b : gradients.layout().buckets)
      grad::visit_gradient(b.type, [&]<class T>() {
        for (const grad::bucket_slot& s : b.slots) {
          const auto i = static_cast<std::size_t>(s.parameter);
          const std::span<T> g = gradients.template gradient<T>(i);
          f(gradients.used(i) ? g : g.first(0));
        }
      });
  } else if constexpr (requires { std::span{gradients}[0] * 1.0; }) {
    f(std::span{gradients});
  } else {
    for (const auto& g : gradients) f(std::span{g});
  }
}

/// The sum of squares of some gradients, and the number of elements that are infinite or NaN. Measures of parts add up,
/// also those of shards over the ranks: `world.all_reduce(measure(shard), std::plus<>{})`.
struct gradient_measure {
  double squares = 0;            ///< sum of the squares; infinite or NaN if an element is, or if the sum overflows
  std::uint64_t not_finite = 0;  ///< number of elements that are infinite or NaN

  [[nodiscard]] bool finite() const noexcept { return not_finite == 0; }
  /// Returns the Euclidean norm of all elements as one vector. Infinite also if the squares of finite doubles are.
  [[nodiscard]] double norm() const noexcept { return std::sqrt(squares); }

  friend gradient_measure operator+(gradient_measure a, const gradient_measure& b) noexcept {
    return {a.squares + b.squares, a.not_finite + b.not_finite};
  }
};

/// Measures one gradient, in double and in an order that depends on its length only. Takes one pass over the elements,
/// and another one if the sum of squares is not finite.
template <gradient_element T>
[[nodiscard]] gradient_measure measure(std::span<const T> g) noexcept {
  std::array<double, 8> sums{};  // independent, so that the additions overlap
  std::size_t i = 0;
  for (; i + sums.size() <= g.size(); i += sums.size())
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const auto x = static_cast<double>(g[i + k]);
      sums[k] += x * x;
    }
  for (; i < g.size(); ++i) sums[0] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  gradient_measure m;
  for (const double s : sums) m.squares += s;
  if (!std::isfinite(m.squares))
    for (const T x : g) m.not_finite += std::isfinite(static_cast<double>(x)) ? 0u : 1u;
  return m;
}

/// Measures all gradients of a grad::reducer that a rank used in the last pass, or of a range of spans.
template <class Gradients>
[[nodiscard]] gradient_measure measure(const Gradients& gradients) {
  gradient_measure m;
  for_each_gradient(gradients, [&]<class T, std::size_t N>(std::span<T, N> g) {
    m = m + measure<std::remove_const_t<T>>(std::span<const T>{g});
  });
  return m;
}

/// The behaviour of clipping if the norm is infinite or NaN, since an element is, or the sum of their squares.
enum class if_not_finite : std::uint8_t {
  spread,  ///< the factor is NaN, and so is every gradient that it multiplies
  refuse   ///< throws std::overflow_error, as torch's error_if_nonfinite; on all ranks if all pass the same norm
};

/// Returns the factor that makes a norm at most `max_norm`, as torch's clip_grad_norm_: max_norm / (norm + 1e-6), or 1
/// if that is not smaller. If the norm is infinite or NaN, the factor is NaN, so that no step looks valid; with torch,
/// an infinite norm sets all finite gradients to zero. An infinite `max_norm` clips nothing. Errors: usage_error for a
/// `max_norm` that is negative or NaN; std::overflow_error if `what` is `refuse`.
[[nodiscard]] inline double clip_factor(double norm, double max_norm, if_not_finite what = if_not_finite::spread) {
  if (!(max_norm >= 0)) throw usage_error("clipping: a largest norm that is negative or NaN; give one of 0 or more");
  if (!std::isfinite(norm)) {
    if (what == if_not_finite::refuse)
      throw std::overflow_error(
          "clipping: the norm of the gradients is infinite or NaN; skip this step, or lower the "
          "learning rate or the scale of the loss");
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

/// Multiplies every gradient by a factor, but those of a grad::reducer that no rank used. Computes in float, or in
/// double for gradients of double and for a factor that float cannot hold, and rounds to the gradient's type. A factor
/// of 0 gives zeros, even for infinities and NaN.
template <class Gradients>
void scale_gradients(Gradients&& gradients, double by) {
  for_each_gradient(gradients, [&]<class T, std::size_t N>(std::span<T, N> g) { grad::multiply(std::span<T>{g}, by); });
}

}  // namespace tutti::train
