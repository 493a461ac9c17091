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

/// What a rank says as it begins: its weight, and what its gradients would be multiplied by because of it. Of all ranks
/// together: the sum, and the least and the greatest factor above 0.
struct pledge {
  std::array<double, weight_digits::count<double>> digits{};
  double least = std::numeric_limits<double>::infinity(), most = 0;
};
struct add_pledges {
  pledge operator()(const pledge& a, const pledge& b) const noexcept {
    pledge both{{}, (std::min)(a.least, b.least), (std::max)(a.most, b.most)};
    for (std::size_t i = 0; i < both.digits.size(); ++i) both.digits[i] = a.digits[i] + b.digits[i];
    return both;
  }
};

/// How the weights of a pass travel, and what gradients are multiplied and divided by because of them. Where sums are
/// to be divided as they are made, and for float16, whose sums would overflow, they travel by themselves, and no bucket
/// leaves before they are known; also where buckets travel in groups of their own, as nothing else would tell ranks
/// that call something else that a pass has begun. Else behind the first bucket of float or double, if there is one.
class weighing {
 public:
  /// Gradients are divided by `predivide` before the sum, and by as much less after it.
  weighing(scaling how, double predivide, int ranks);

  /// For the buckets of this plan, which leave in this order.
  void arrange(const plan& p, launch_order order);

  /// In a collective of their own, which begin() starts.
  [[nodiscard]] bool travel_alone() const noexcept { return alone_; }

  /// With the weight of this rank, whose gradients are `what`; it travels at once where the weights do by themselves.
  template <class Comm>
  void begin(Comm& world, double weight, contribution what, partial_sums sums, const std::source_location& where) {
    weight_ = weight;
    sums_ = sums;
    // Where gradients are taken as they are, a weight only says whether they count.
    factor_ = factor_of(detail::takes_as_is(how_) ? contribution::sum : what, weight);
    common_ = 1;
    if (!alone_) return;
    pledge_ = {};
    weight_digits::put(weight_, std::span<double>{pledge_.digits});
    if (factor_ > 0) pledge_.least = pledge_.most = factor_;
    static_cast<void>(flight_.emplace(world.all_reduce(std::span{&pledge_, 1}, add_pledges{}, {}, where)));
  }
  void forget() noexcept { flight_.reset(); }

  /// Puts the weight behind bucket `b`, if it travels there.
  template <class T>
  void put(std::size_t b, std::span<T> tail) const noexcept {
    if constexpr (sizeof(T) >= sizeof(float))
      if (!alone_ && b == behind_) weight_digits::put(weight_, tail);
  }

  /// True when before() of T will not change any more in this pass.
  template <class T>
  [[nodiscard]] bool settled() const noexcept {
    return !flight_ || factor_ == 0 || !waits<T>();
  }
  /// Before a bucket of T leaves: waits until all ranks have begun, where that matters to it.
  template <class T>
  void settle() {
    if (!flight_ || !waits<T>()) return;
    std::exchange(flight_, std::nullopt)->wait();
    hear();
  }
  /// Ends when all have begun, where the weights travel by themselves.
  task<> all_heard();
  /// After the last bucket.
  void learn_from(const arena& memory) noexcept;

  /// What gradients of T are multiplied by before the sum; after settle().
  template <class T>
  [[nodiscard]] double before() const noexcept {
    return factor_ / common_ / predivide_ / unit<T>();
  }
  /// What a hook divides sums of T by; after settle().
  template <class T>
  [[nodiscard]] double divisor() const noexcept {
    if (how_ == scaling::averaged) return ranks_;
    return how_ == scaling::divided && divides<T>(whole<T>()) ? whole<T>() : 1;
  }
  /// What is left to divide by; once the sum of the weights is known.
  template <class T>
  [[nodiscard]] double after() const noexcept {
    return divisor<T>() == 1 ? whole<T>() : 1;
  }

  /// What this rank's gradients count for in the mean, whose sum over the ranks is one where they are means; 0 where
  /// all weights are. And what those of all ranks count for that have a weight, if that is the same; else 0,
  /// everywhere. Where the weights travel alone, after settle().
  [[nodiscard]] double share() const noexcept { return total_ > 0 ? factor_ / common_ / shares_ : 0; }
  [[nodiscard]] double even_share() const noexcept {
    return total_ > 0 && pledge_.least == pledge_.most ? pledge_.most / common_ / shares_ : 0;
  }

  /// This rank's weight in the pass under way, and that of all ranks in the last one; 0 before the first.
  [[nodiscard]] double mine() const noexcept { return weight_; }
  [[nodiscard]] double total() const noexcept { return total_; }
  /// Gradients of T travel divided by this; of float16, after before().
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
  // A kernel divides by what the type computed in holds, and leaves something of a flag in the tail.
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
  void hear() noexcept { learn(weight_digits::take(std::span<const double>{pledge_.digits})); }
  // The unit is so large that no sum of float16 exceeds its largest term, and a power of two, by which only subnormals
  // are rounded.
  void learn(double total) noexcept;

  scaling how_;
  partial_sums sums_ = partial_sums::rounded;
  double predivide_;
  int ranks_;
  bool alone_ = true;
  std::size_t behind_ = 0;
  double weight_ = 1, factor_ = 1, common_ = 1;  // this rank's, and what all factors above 0 are if they are equal
  double total_ = 0, shares_ = 0, unit_ = 1;     // the sum of the weights, over the common factor, a power of two above
  pledge pledge_;
  std::optional<op> flight_;
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/weighing.hpp>
#endif
