#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::grad {

/// What a rank's gradients are before they are combined.
enum class contribution : std::uint8_t {
  mean,  ///< over the rank's own samples; weighted by their number
  sum    ///< over the rank's own samples
};

struct reducer_options {
  bucket_limits limits{};
};

template <class Comm, class Hook = sum_hook>
  requires reduction_hook<Hook, Comm>
class reducer;

/// One backward pass. Tells the reducer which gradients are complete; ends with `co_await pass.finish()`.
/// Dropped without it (an exception in the backward pass), it aborts the communicator: the peers would wait for ever.
template <class Comm, class Hook>
class [[nodiscard]] pass {
 public:
  pass(pass&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {
    if (owner_) owner_->current_ = this;
  }
  pass& operator=(pass&&) = delete;
  ~pass() {
    if (owner_) owner_->give_up();
  }

  /// This rank's gradient of one parameter, in the order of registration, is complete. In any order, each exactly once.
  /// Starts the buckets that are complete, in the plan's order, and lets what travels already make progress. The first
  /// one of float16 waits until all ranks have begun. The gradient belongs to the reducer until finish() has ended.
  /// Errors: usage_error for a wrong mark, which changes nothing; an exception of the hook, or an error while waiting,
  /// ends the pass.
  void ready(std::size_t parameter) { owner().ready(parameter); }

  /// Ends when all gradients hold their weighted mean over the ranks. Consumes the pass; a task that is dropped before
  /// its end drops the pass. A parameter that was never marked is a usage_error that names it; the communicator is
  /// then aborted. Also throws the error of a collective.
  task<> finish() { return owner().finish(std::move(*this)); }

 private:
  friend class reducer<Comm, Hook>;
  explicit pass(reducer<Comm, Hook>& r) noexcept : owner_(&r) { r.current_ = this; }

  [[nodiscard]] reducer<Comm, Hook>& owner() const {
    if (!owner_) throw usage_error("pass: it has ended, or was moved from; begin() another one");
    return *owner_;
  }
  reducer<Comm, Hook>* owner_;
};

/// Averages gradients over ranks while the backward pass still computes: the DistributedDataParallel of C++.
///
/// Gradients are views into the reducer's arena. In a pass every bucket is summed over the ranks as soon as its last
/// gradient is ready, in the same order on all ranks, and the result is the weighted mean for any batch sizes. The
/// weights travel behind a bucket of float or double; where there is none, or float16 needs their sum first so that its
/// own sums do not overflow, in a small collective that begin() starts. Collective: constructed by all ranks with equal
/// shapes (checked), one pass at a time. One thread at a time. The communicator must outlive it.
/// Errors: usage_error for wrong shapes or marks; error as of all_reduce.
/// Costs one all_reduce per bucket and one multiplication and one division per element.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
class reducer {
 public:
  explicit reducer(Comm& world, std::span<const parameter_shape> shapes, reducer_options options = {}, Hook hook = {},
                   std::source_location where = std::source_location::current())
      : world_(&world), hook_(std::move(hook)), arena_(shapes, plan_for(shapes, options.limits), [&](std::size_t n) {
          return world.template allocate<std::byte>(n);
        }) {
    for (const parameter_shape& s : shapes) names_.push_back(s.name);
    marked_.resize(names_.size());
    const auto& buckets = arena_.layout().buckets;
    const auto wide = [](const bucket& b) { return size_of(b.type) >= sizeof(float); };
    const auto narrow = [](const bucket& b) { return b.type == dtype::f16; };
    weighing_ = std::any_of(buckets.begin(), buckets.end(), narrow)
                    ? buckets.size()
                    : static_cast<std::size_t>(std::find_if(buckets.begin(), buckets.end(), wide) - buckets.begin());
    flights_.resize(buckets.size());
    missing_.resize(buckets.size());
    check_agreement(where);
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  ~reducer() {
    if (current_) give_up();
  }

  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return arena_.layout(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.bytes(); }
  /// The sum of all ranks' weights in the last pass; 0 before the first.
  [[nodiscard]] double total_weight() const noexcept { return total_weight_; }

  /// The gradient of one parameter: write it in the backward pass, read the mean after finish(). Zero at first.
  template <number T>
  [[nodiscard]] std::span<T> gradient(std::size_t parameter) const {
    return arena_.gradient<T>(parameter);
  }
  /// All of them, where they have one type.
  template <number T = float>
  [[nodiscard]] std::vector<std::span<T>> gradients() const {
    std::vector<std::span<T>> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back(arena_.gradient<T>(i));
    return all;
  }

  /// Begins a pass. `weight` is what this rank's gradients count for: its number of samples or tokens; 0 contributes
  /// nothing, and where all weights are 0 the result is 0. Throws usage_error while another pass is under way.
  [[nodiscard]] pass<Comm, Hook> begin(double weight = 1, contribution what = contribution::mean,
                                       std::source_location where = std::source_location::current()) {
    weight_digits::check(weight);
    if (current_) throw usage_error("reducer: begin() before the previous pass was finished");
    where_ = where;
    weight_ = weight;
    scale_ = what == contribution::mean ? weight : (weight > 0 ? 1 : 0);
    next_ = 0;
    std::fill(marked_.begin(), marked_.end(), char{0});
    const auto& buckets = layout().buckets;
    for (std::size_t b = 0; b < buckets.size(); ++b) missing_[b] = buckets[b].slots.size();
    pass<Comm, Hook> begun{*this};
    if (weighing_ == buckets.size()) {
      weight_digits::put(weight_, std::span<double>{digits_});
      weights_flight_.emplace(world_->all_reduce(digits_, sum, {}, where));
    }
    return begun;
  }

 private:
  friend class pass<Comm, Hook>;
  using flight = detail::flight_t<Hook, Comm>;

  static plan plan_for(std::span<const parameter_shape> shapes, const bucket_limits& limits) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (!has_mean(shapes[i].type))
        throw usage_error("reducer: " + label(i, shapes[i].name) + " is " + std::string(name(shapes[i].type)) +
                          ", which cannot be averaged; use float16, bfloat16, float or double");
    return make_plan(shapes, limits);
  }

  void check_agreement(const std::source_location& where) const {
    const std::uint64_t mine = layout().id();
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world_->size()));
    world_->all_gather(std::span{&mine, 1}, all, {}, where).wait();
    const auto odd = std::find_if(all.begin(), all.end(), [&](std::uint64_t id) { return id != all[0]; });
    if (odd == all.end()) return;
    const int who = world_->world_rank(static_cast<int>(odd - all.begin()));  // this may be a group
    throw error({errc::mismatch, 0, who, 0},
                "reducer: rank " + std::to_string(who) + " has other gradients than rank " +
                    std::to_string(world_->world_rank(0)) +
                    " (their number, counts, types or bucket limits differ); all ranks must build the same model",
                {world_->rank(), 0, "reducer", where});
  }

  static std::string label(std::size_t i, const std::string& name) {
    return "parameter " + std::to_string(i) + (name.empty() ? "" : " (" + name + ")");
  }

  void ready(std::size_t i) {
    if (i >= size())
      throw usage_error("ready: there is no parameter " + std::to_string(i) + " among " + std::to_string(size()));
    if (marked_[i]) throw usage_error("ready: " + label(i, names_[i]) + " was marked twice in one pass");
    marked_[i] = 1;
    const std::size_t b = arena_.bucket_of(i);
    visit_gradient(layout().buckets[b].type, [&]<class T>() {
      if constexpr (!std::same_as<T, float16>) multiply(arena_.gradient<T>(i), scale_);
    });
    --missing_[b];
    try {
      while (next_ < missing_.size() && missing_[next_] == 0) launch(next_++);
    } catch (...) {
      give_up();
      throw;
    }
    world_->engine().poll();
  }

  void launch(std::size_t b) {
    const bucket& k = layout().buckets[b];
    visit_gradient(k.type, [&]<class T>() {
      const auto elements = arena_.bucket_with_tail<T>(b);
      if constexpr (std::same_as<T, float16>) {
        // Waits, and does not leave this bucket to a later mark: its place among the collectives that the user issues
        // between marks must not depend on when messages arrive.
        if (weights_flight_) {
          std::exchange(weights_flight_, std::nullopt)->wait();
          learn_total(weight_digits::take(std::span<const double>{digits_}));
        }
        multiply(elements.first(k.count), scale_ / unit_);
      }
      if constexpr (sizeof(T) >= sizeof(float))
        if (b == weighing_) weight_digits::put(weight_, arena_.tail<T>(b));
      flights_[b].emplace(hook_(*world_, bucket_view<T>{b, elements, where_}));
    });
  }

  // The unit is a power of two, so that scaling by it rounds nothing, and so large that no sum of float16 exceeds its
  // largest term.
  void learn_total(double total) noexcept {
    total_weight_ = total;
    unit_ = 1;
    while (unit_ < total) unit_ *= 2;
    while (total > 0 && unit_ / 2 >= total) unit_ /= 2;
  }
  [[nodiscard]] double sum_behind_bucket() const noexcept {
    if (layout().buckets[weighing_].type == dtype::f64)
      return weight_digits::take(std::span<const double>{arena_.tail<double>(weighing_)});
    return weight_digits::take(std::span<const float>{arena_.tail<float>(weighing_)});
  }

  task<> finish(pass<Comm, Hook> given) {
    auto mine = std::move(given);  // a parameter lives as long as the task, this one as long as the body
    for (std::size_t i = 0; i < size(); ++i)
      if (!marked_[i]) throw usage_error("finish: " + label(i, names_[i]) + " was never marked ready in this pass");
    for (auto& f : flights_) {
      flight taken = std::move(*f);
      f.reset();
      co_await std::move(taken);
    }
    if (weights_flight_) {
      co_await *std::exchange(weights_flight_, std::nullopt);
      learn_total(weight_digits::take(std::span<const double>{digits_}));
    } else if (weighing_ < flights_.size()) {
      learn_total(sum_behind_bucket());
    }
    const auto& buckets = layout().buckets;
    for (std::size_t b = 0; b < buckets.size() && total_weight_ > 0; ++b)
      visit_gradient(buckets[b].type, [&]<class T>() {
        divide(arena_.bucket_with_tail<T>(b).first(buckets[b].count),
               std::same_as<T, float16> ? total_weight_ / unit_ : total_weight_);
      });
    let_go();
  }

  void let_go() noexcept {
    if (current_) std::exchange(current_, nullptr)->owner_ = nullptr;
  }
  void give_up() noexcept {
    world_->abort();
    for (auto& f : flights_) f.reset();
    weights_flight_.reset();
    let_go();
  }

  Comm* world_;
  Hook hook_;
  arena arena_;
  std::vector<std::string> names_;
  std::vector<char> marked_;
  std::vector<std::size_t> missing_;  // gradients that a bucket still waits for
  std::vector<std::optional<flight>> flights_;
  std::size_t next_ = 0;      // the first bucket that has not been launched
  std::size_t weighing_ = 0;  // the bucket that the weights travel behind; past the last one: they travel by themselves
  std::array<double, weight_digits::count<double>> digits_{};
  std::optional<op> weights_flight_;
  std::source_location where_;
  double weight_ = 1, scale_ = 1, total_weight_ = 0, unit_ = 1;
  pass<Comm, Hook>* current_ = nullptr;  // where it was moved to last; null between passes
};

}  // namespace tutti::grad
