#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/when_used.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::grad {

/// How the weights of a pass travel, and what gradients are multiplied and divided by because of them. They travel
/// behind the first bucket of float or double; where there is none, or float16 needs their sum before its own so that
/// this does not overflow, by themselves.
template <class = when_used>
class basic_weighing {
 public:
  /// Gradients are divided by `predivide` before the sum, and by as much less after it; neither where a hook takes them
  /// as they are.
  basic_weighing(scaling how, double predivide) : how_(how), predivide_(how == scaling::weighted ? predivide : 1) {
    if (!(predivide > 0) || predivide > std::numeric_limits<double>::max())
      throw usage_error("reducer: predivide is a finite number above 0");
  }

  /// For the buckets of this plan.
  void arrange(const plan& p) {
    const auto wide = [](const bucket& b) { return size_of(b.type) >= sizeof(float); };
    const auto narrow = [](const bucket& b) { return b.type == dtype::f16; };
    const auto& buckets = p.buckets;
    alone_ = std::any_of(buckets.begin(), buckets.end(), narrow) || std::none_of(buckets.begin(), buckets.end(), wide);
    behind_ = static_cast<std::size_t>(std::find_if(buckets.begin(), buckets.end(), wide) - buckets.begin());
  }

  /// In a collective of their own, which begin() starts.
  [[nodiscard]] bool travel_alone() const noexcept { return alone_; }

  /// With the weight of this rank, whose gradients are `what`; it travels at once where the weights do by themselves.
  template <class Comm>
  void begin(Comm& world, double weight, contribution what, const std::source_location& where) {
    weight_ = weight;
    // Where gradients are taken as they are, a weight only says whether they count.
    scale_ = factor_of(how_ == scaling::weighted ? what : contribution::sum, weight) / predivide_;
    if (!alone_) return;
    weight_digits::put(weight_, std::span<double>{digits_});
    flight_.emplace(world.all_reduce(digits_, sum, {}, where));
  }
  void forget() noexcept { flight_.reset(); }

  /// Puts the weight behind bucket `b`, if it travels there.
  template <class T>
  void put(std::size_t b, std::span<T> tail) const noexcept {
    if constexpr (sizeof(T) >= sizeof(float))
      if (!alone_ && b == behind_) weight_digits::put(weight_, tail);
  }

  /// What gradients of T are multiplied by before the sum. For float16 it waits until all ranks have begun.
  template <class T>
  [[nodiscard]] double before() {
    if constexpr (!std::is_same_v<T, float16>) return scale_;
    if (flight_) {
      std::exchange(flight_, std::nullopt)->wait();
      learn(weight_digits::take(std::span<const double>{digits_}));
    }
    return scale_ / unit_;
  }
  /// What sums of T are divided by; after learn_from().
  template <class T>
  [[nodiscard]] double after() const noexcept {
    return std::is_same_v<T, float16> ? total_ / unit_ / predivide_ : total_ / predivide_;
  }

  /// The weights' own flight, where there is one; to be awaited before learn_from().
  [[nodiscard]] std::optional<op> flight() noexcept { return std::exchange(flight_, std::nullopt); }
  void learn_from(const arena& memory) noexcept {
    if (alone_)
      learn(weight_digits::take(std::span<const double>{digits_}));
    else if (memory.layout().buckets[behind_].type == dtype::f64)
      learn(weight_digits::take(std::span<const double>{memory.tail<double>(behind_)}));
    else
      learn(weight_digits::take(std::span<const float>{memory.tail<float>(behind_)}));
  }

  /// This rank's weight in the pass under way, and that of all ranks in the last one; 0 before the first.
  [[nodiscard]] double mine() const noexcept { return weight_; }
  [[nodiscard]] double total() const noexcept { return total_; }

 private:
  // The unit is a power of two, so that scaling by it rounds nothing, and so large that no sum of float16 exceeds its
  // largest term.
  void learn(double total) noexcept {
    total_ = total;
    unit_ = 1;
    // A hook that does not leave the tail alone may have made anything of it.
    if (how_ == scaling::none || !(total > 0 && total < 0x1p1000)) return;
    while (unit_ < total) unit_ *= 2;
    while (unit_ / 2 >= total) unit_ /= 2;
  }

  scaling how_;
  double predivide_;
  bool alone_ = true;
  std::size_t behind_ = 0;
  double weight_ = 1, scale_ = 1, total_ = 0, unit_ = 1;
  std::array<double, weight_digits::count<double>> digits_{};
  std::optional<op> flight_;
};
/// See basic_weighing.
using weighing = basic_weighing<>;

}  // namespace tutti::grad
