#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::grad {

/// A rank's message at the start of a pass: its weight, and the factor that its gradients would have because of it.
/// Combined over ranks: the sum, and the least and the greatest factor above 0.
struct weight_range {
  std::array<double, weight_digits::count<double>> digits{};
  double least = std::numeric_limits<double>::infinity(), most = 0;
};
struct combine_ranges {
  weight_range operator()(const weight_range& a, const weight_range& b) const noexcept {
    weight_range both{{}, (std::min)(a.least, b.least), (std::max)(a.most, b.most)};
    for (std::size_t i = 0; i < both.digits.size(); ++i) both.digits[i] = a.digits[i] + b.digits[i];
    return both;
  }
};

/// The exchange of a pass's weights, and the resulting factors and divisors of gradients. Weights have a collective of
/// their own, and no bucket is launched before it ends, if sums are divided as they are made, or for float16, whose
/// sums would overflow; also if buckets have groups of their own, since nothing else would tell ranks that call
/// something else that a pass has begun. Otherwise they are sent behind the first bucket of float or double.
class weight_sync {
 public:
  /// Divides gradients by `predivide` before the sum, and by that much less after it. Throws usage_error unless it is a
  /// finite number above 0, and for another one than 1 with a hook that takes gradients unscaled.
  weight_sync(scaling how, double predivide, int ranks);

  /// Prepares for the buckets of a plan, launched in this order.
  void arrange(const plan& p, launch_order order);

  /// Returns true if the weights have a collective of their own, which begin() starts.
  [[nodiscard]] bool own_collective() const noexcept { return own_collective_; }

  /// Begins a pass with this rank's weight and kind of gradients; starts the collective of the weights, if they have
  /// one.
  template <class Comm>
  void begin(Comm& world, double weight, contribution what, partial_sums sums, const std::source_location& where) {
    weight_ = weight;
    sums_ = sums;
    // If the hook takes gradients unscaled, a weight only says whether they count.
    factor_ = factor_of(detail::takes_as_is(how_) ? contribution::sum : what, weight);
    common_ = 1;
    if (!own_collective_) return;
    range_ = {};
    weight_digits::put(weight_, std::span<double>{range_.digits});
    if (factor_ > 0) range_.least = range_.most = factor_;
    static_cast<void>(exchange_.emplace(world.all_reduce(std::span{&range_, 1}, combine_ranges{}, {}, where)));
  }
  void forget() noexcept { exchange_.reset(); }

  /// Writes the weight behind bucket `b`, if that bucket carries it.
  template <class T>
  void put(std::size_t b, std::span<T> tail) const noexcept {
    if constexpr (sizeof(T) >= sizeof(float))
      if (!own_collective_ && b == carrier_) weight_digits::put(weight_, tail);
  }

  /// Returns true if prescale() of T will not change any more in this pass.
  template <class T>
  [[nodiscard]] bool factor_known() const noexcept {
    return !exchange_ || factor_ == 0 || !waits<T>();
  }
  /// Waits until all ranks have begun, if a bucket of T depends on that; called before it is launched.
  template <class T>
  void await_weights() {
    if (!exchange_ || !waits<T>()) return;
    std::exchange(exchange_, std::nullopt)->wait();
    received();
  }
  /// Gives up the collective of the weights, if one is in flight: await it, then call received(). Not a coroutine,
  /// which g++ would emit in every file that includes this.
  [[nodiscard]] std::optional<op> take_collective() noexcept { return std::exchange(exchange_, std::nullopt); }
  void received() noexcept { learn(weight_digits::take(std::span<const double>{range_.digits})); }
  /// Learns the weights from their bucket, after the last bucket has ended.
  void learn_from(const arena& memory) noexcept;

  /// Returns the factor of gradients of T before the sum; after await_weights().
  template <class T>
  [[nodiscard]] double prescale() const noexcept {
    return factor_ / common_ / predivide_ / unit<T>();
  }
  /// Returns the divisor that a hook applies to sums of T; after await_weights().
  template <class T>
  [[nodiscard]] double divisor() const noexcept {
    if (how_ == scaling::averaged) return ranks_;
    return how_ == scaling::divided && divides<T>(whole<T>()) ? whole<T>() : 1;
  }
  /// Returns the divisor that is left to apply, once the sum of the weights is known.
  template <class T>
  [[nodiscard]] double remaining_divisor() const noexcept {
    return divisor<T>() == 1 ? whole<T>() : 1;
  }

  /// Return this rank's share and the even share. share() is the factor of this rank's gradients, which is the weight
  /// if they are means, over the sum of all weights; 0 if all weights are 0. even_share() is the same if all ranks with
  /// a weight have an equal share, else 0; it is equal on all ranks. After await_weights(), if the weights have a
  /// collective of their own.
  [[nodiscard]] double share() const noexcept { return total_ > 0 ? factor_ / common_ / shares_ : 0; }
  [[nodiscard]] double even_share() const noexcept {
    return total_ > 0 && range_.least == range_.most ? range_.most / common_ / shares_ : 0;
  }

  /// Returns the sum of all ranks' weights in the last pass; 0 before the first.
  [[nodiscard]] double total() const noexcept { return total_; }
  /// Returns the unit by which gradients of T are divided when they are sent; of float16, after prescale().
  template <class T>
  [[nodiscard]] double unit() const noexcept {
    return std::is_same_v<T, float16> ? unit_ : 1;
  }

 private:
  template <class T>
  [[nodiscard]] bool waits() const noexcept {
    return how_ == scaling::divided || std::is_same_v<T, float16>;
  }
  template <class T>
  [[nodiscard]] double whole() const noexcept {
    return shares_ / unit<T>() / predivide_;
  }
  // Returns true if a kernel can divide by `by`: the type it computes in must hold it, and a flag in the tail must not
  // vanish.
  template <class T>
  [[nodiscard]] static bool divides(double by) noexcept {
    constexpr double most = std::is_same_v<T, float16> ? 0x1p12 : 0x1p90;
    return by >= 1 / most && by <= most && detail::holds<T>(by);
  }

  template <class T>
  void learn_from(std::span<T> tail) noexcept {
    if (how_ == scaling::averaged) weight_digits::undo_average(ranks_, tail);
    learn(weight_digits::take(std::span<const T>{tail}));
  }
  // Sets the total and the unit. The unit is large enough that no sum of float16 exceeds its largest term, and a power
  // of two, so that only subnormals are rounded.
  void learn(double total) noexcept;

  scaling how_;
  partial_sums sums_ = partial_sums::rounded;
  double predivide_;
  int ranks_;
  bool own_collective_ = true;
  std::size_t carrier_ = 0;
  double weight_ = 1, factor_ = 1, common_ = 1;  // this rank's; the common one of all factors above 0, if any
  double total_ = 0, shares_ = 0, unit_ = 1;     // the sum of the weights; that over common_; a power of two above
  weight_range range_;
  std::optional<op> exchange_;
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/weight_sync.hpp>
#endif
