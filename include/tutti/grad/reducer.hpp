#pragma once
#include <algorithm>
#include <bit>
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
#include <tutti/grad/agreement.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/pass.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/usage.hpp>
#include <tutti/grad/weighing.hpp>

namespace tutti::grad {

/// Averages gradients over ranks while the backward pass still computes: the DistributedDataParallel of C++.
///
/// Gradients are views into the reducer's arena. In a pass every bucket is summed over the ranks as soon as its last
/// gradient is ready, in the same order on all ranks, and the result is the weighted mean for any batch sizes. The
/// weights travel behind a bucket of float or double; where there is none, or float16 needs their sum first so that its
/// own sums do not overflow, in a small collective that begin() starts. Collective: constructed by all ranks with equal
/// shapes (checked), one pass at a time. One thread at a time. The communicator must outlive it.
/// Errors: usage_error for wrong shapes or marks; error as of all_reduce.
/// Costs one all_reduce per bucket and one multiplication and one division per element.
template <class Comm, class Hook = sum_hook>
  requires reduction_hook<Hook, Comm>
class reducer {
 public:
  using pass_type = pass<reducer>;

  explicit reducer(Comm& world, std::span<const parameter_shape> shapes, reducer_options options = {}, Hook hook = {},
                   std::source_location where = std::source_location::current())
      : world_(&world),
        hook_(std::move(hook)),
        options_(std::move(options)),
        shapes_(shapes.begin(), shapes.end()),
        arena_(make_arena(plan_for(options_.arrival))),
        usage_(shapes.size()),
        weights_(detail::scaling_of<Hook>, options_.predivide) {
    marked_.resize(size());
    arrival_.reserve(size());
    prepare_buckets();
    // Whose sums are divided by other factors ends with other bits.
    detail::check_agreement(world, "reducer", shapes_, layout().id() ^ std::bit_cast<std::uint64_t>(options_.predivide),
                            where);
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  ~reducer() {
    if (current_) drop();
  }

  [[nodiscard]] std::size_t size() const noexcept { return shapes_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return arena_.layout(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.bytes(); }
  [[nodiscard]] Hook& hook() noexcept { return hook_; }
  /// The sum of all ranks' weights in the last pass; 0 before the first, and when all ranks have run out of samples.
  [[nodiscard]] double total_weight() const noexcept { return weights_.total(); }
  /// False where unused parameters are tracked and no rank used this one in the last pass: it is not to be stepped.
  [[nodiscard]] bool used(std::size_t parameter) const noexcept { return usage_.used_anywhere(parameter); }
  /// The order in which this rank marked its gradients in the last pass that reduced; empty before.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return arrival_; }

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
  [[nodiscard]] pass_type begin(double weight = 1, contribution what = contribution::mean,
                                std::source_location where = std::source_location::current()) {
    const double whole = start(weight);
    where_ = where;
    reduces_ = true;
    next_ = 0;
    arrival_.clear();
    const auto& buckets = layout().buckets;
    for (std::size_t b = 0; b < buckets.size(); ++b) missing_[b] = buckets[b].slots.size();
    pass_type begun{*this};
    weights_.begin(*world_, whole, what, where);
    return begun;
  }

  /// Begins a pass that sends nothing: the backward pass adds to the gradients, and the next begin() without
  /// `accumulate` reduces what has come together, with the weights of all these passes added up. Gradients need not
  /// all be marked. Whoever divides by the number of passes, if anybody, is the caller.
  [[nodiscard]] pass_type begin(accumulate_t, double weight = 1) {
    (void)start(weight);
    reduces_ = false;
    more_weight_ = weight;
    return pass_type{*this};
  }

  /// Lays the buckets out anew in the order in which gradients arrived at rank 0 in the last pass; gradients keep their
  /// values, but where the result is true they lie elsewhere: fetch the views again. Collective, between passes; cheap
  /// where nothing changes. Errors: usage_error during a pass.
  [[nodiscard]] task<bool> rebuild(std::source_location where = std::source_location::current()) {
    if (current_) throw usage_error("reducer: rebuild() during a pass; finish it first");
    std::vector<int> order(arrival_);
    if (order.size() != size()) order = order_of(layout());
    co_await world_->broadcast(order, 0, {}, where);
    try {
      plan better = plan_for(order);
      if (better == layout()) co_return false;
      arena moved = make_arena(std::move(better));
      for (std::size_t i = 0; i < size(); ++i)
        visit_gradient(shapes_[i].type, [&]<class T>() {
          const auto old = arena_.gradient<T>(i);
          std::copy(old.begin(), old.end(), moved.template gradient<T>(i).begin());
        });
      arena_ = std::move(moved);
      prepare_buckets();
      if constexpr (requires { hook_.reset(); }) hook_.reset();
    } catch (...) {
      world_->abort();
      throw;
    }
    co_return true;
  }

 private:
  friend pass_type;
  using flight = detail::flight_t<Hook, Comm>;
  static constexpr bool weighted = detail::scaling_of<Hook> == scaling::weighted;

  [[nodiscard]] plan plan_for(std::span<const int> arrival) const {
    for (std::size_t i = 0; i < size(); ++i)
      if (!has_mean(shapes_[i].type))
        throw usage_error("reducer: " + label(i) + " is " + std::string(name(shapes_[i].type)) +
                          ", which cannot be averaged; use float16, bfloat16, float or double");
    plan p = make_plan(shapes_, options_.limits, arrival);
    if (options_.unused == unused_parameters::tracked && !p.buckets.empty()) {
      bucket& last = p.buckets.back();
      last.tail_lines += (size() * size_of(last.type) + slot_alignment - 1) / slot_alignment;
    }
    return p;
  }
  [[nodiscard]] arena make_arena(plan p) const {
    return arena(shapes_, std::move(p), [&](std::size_t n) {
      try {
        return world_->template allocate<std::byte>(n);
      } catch (...) {  // the others may have memory, and would wait for this rank
        world_->abort();
        throw;
      }
    });
  }
  static std::vector<int> order_of(const plan& p) {
    std::vector<int> order;
    for (const bucket& b : p.buckets)
      for (const bucket_slot& s : b.slots) order.push_back(s.parameter);
    return order;
  }
  void prepare_buckets() {
    const auto& buckets = layout().buckets;
    weights_.arrange(layout());
    flights_.clear();
    flights_.resize(buckets.size());
    missing_.resize(buckets.size());
  }

  [[nodiscard]] std::string label(std::size_t i) const {
    return "parameter " + std::to_string(i) + (shapes_[i].name.empty() ? "" : " (" + shapes_[i].name + ")");
  }
  /// What both kinds of passes begin with; returns the weight of all that has been accumulated, and of this.
  double start(double weight) {
    weight_digits::check(weight);
    weight_digits::check(carried_weight_ + weight);
    if (current_) throw usage_error("reducer: begin() before the previous pass was finished");
    if (!carrying_) {
      usage_.clear();
      step_ = step::apply;
    }
    std::fill(marked_.begin(), marked_.end(), char{0});
    return carried_weight_ + weight;
  }

  void mark(std::size_t i, const char* call) {
    if (i >= size())
      throw usage_error(std::string(call) + ": there is no parameter " + std::to_string(i) + " among " +
                        std::to_string(size()));
    if (marked_[i]) throw usage_error(std::string(call) + ": " + label(i) + " was marked twice in one pass");
    marked_[i] = 1;
  }

  void ready(std::size_t i) {
    mark(i, "ready");
    usage_.use(i);
    if (reduces_) complete(i);
  }

  void unused(std::size_t i) {
    mark(i, "unused");
    if (!reduces_) return;
    try {
      if (!usage_.used_here(i)) set_aside(i);
    } catch (...) {
      give_up();
      throw;
    }
    complete(i);
  }
  void rest_unused() {
    for (std::size_t i = 0; i < size(); ++i)
      if (!marked_[i]) unused(i);
  }

  void skip(step why) {
    if (why == step::apply) throw usage_error("skip: say why, by one of the other values of grad::step");
    if (reduces_ && next_ == missing_.size() && why > step_)
      throw usage_error("skip: all gradients are marked, and the peers have been told so; skip before the last mark");
    step_ = std::max(step_, why);
    if (!reduces_) carrying_ = true;  // also where this pass is dropped: what it has added stays
    for (std::size_t i = 0; reduces_ && i < size(); ++i) {
      if (marked_[i]) continue;
      mark(i, "skip");
      complete(i);
    }
  }

  // A gradient that this pass does not use contributes zero.
  void set_aside(std::size_t i) {
    visit_gradient(shapes_[i].type, [&]<class T>() {
      const auto g = arena_.gradient<T>(i);
      if (options_.unused == unused_parameters::tracked)
        usage_.keep(i, g);
      else
        std::fill(g.begin(), g.end(), T{});
    });
  }

  void complete(std::size_t i) {
    arrival_.push_back(static_cast<int>(i));
    const std::size_t b = arena_.bucket_of(i);
    visit_gradient(layout().buckets[b].type, [&]<class T>() {
      if constexpr (!std::same_as<T, float16>) multiply(arena_.gradient<T>(i), weights_.before<T>());
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
      const auto tail = arena_.tail<T>(b);
      constexpr std::size_t line = line_elements<T>;
      // Waits, and does not leave this bucket to a later mark: its place among the collectives that the user issues
      // between marks must not depend on when messages arrive.
      if constexpr (std::same_as<T, float16>) multiply(elements.first(k.count), weights_.before<T>());
      weights_.put(b, tail);
      if (b + 1 == missing_.size()) {
        step_flags::put(step_, tail.first(line));
        if (tail.size() > line) usage_.put(tail.subspan(line));
      }
      flights_[b].emplace(hook_(*world_, bucket_view<T>{b, elements, where_, k.slots, tail.size()}));
    });
  }

  task<step> finish(pass_type given) {
    auto mine = std::move(given);  // a parameter lives as long as the task, this one as long as the body
    if (!reduces_) {
      carried_weight_ += more_weight_;
      carrying_ = true;
      let_go();
      co_return step_;
    }
    for (std::size_t i = 0; i < size(); ++i)
      if (!marked_[i]) throw usage_error("finish: " + label(i) + " was never marked ready in this pass");
    for (auto& f : flights_) {
      flight taken = std::move(*f);
      f.reset();
      co_await std::move(taken);
    }
    if (auto weights = weights_.flight()) co_await *std::move(weights);
    weights_.learn_from(arena_);
    conclude();
    let_go();
    co_return step_;
  }

  // What all ranks have learned, and the mean.
  void conclude() {
    carrying_ = false;
    carried_weight_ = 0;
    const auto& buckets = layout().buckets;
    if (buckets.empty()) return;
    visit_gradient(buckets.back().type, [&]<class T>() {
      const std::span<const T> tail = arena_.tail<T>(buckets.size() - 1);
      constexpr std::size_t line = line_elements<T>;
      step_ = step_flags::take(tail.first(line));
      if (tail.size() > line) usage_.take(tail.subspan(line));
    });
    if (step_ != step::apply) return;
    for (std::size_t b = 0; weighted && b < buckets.size(); ++b)
      visit_gradient(buckets[b].type, [&]<class T>() {
        const auto sums = arena_.bucket_with_tail<T>(b).first(buckets[b].count);
        // Of nothing but weights of 0 the result is 0, even where a hook sends what it left out before.
        weights_.total() > 0 ? divide(sums, weights_.after<T>()) : multiply(sums, 0);
      });
    usage_.restore(arena_);
  }

  void let_go() noexcept {
    if (current_) std::exchange(current_, nullptr)->owner_ = nullptr;
  }
  void drop() noexcept { reduces_ ? give_up() : let_go(); }
  void give_up() noexcept {
    world_->abort();
    for (auto& f : flights_) f.reset();
    weights_.forget();
    let_go();
  }

  Comm* world_;
  Hook hook_;
  reducer_options options_;
  std::vector<parameter_shape> shapes_;
  arena arena_;
  usage usage_;
  weighing weights_;
  std::vector<char> marked_;
  std::vector<int> arrival_;
  std::vector<std::size_t> missing_;  // gradients that a bucket still waits for
  std::vector<std::optional<flight>> flights_;
  std::size_t next_ = 0;  // the first bucket that has not been launched
  std::source_location where_;
  double carried_weight_ = 0;  // of the passes that accumulated
  double more_weight_ = 0;     // of the one under way, if it does
  bool carrying_ = false;      // there were some since the last pass that reduced
  bool reduces_ = true;        // the pass under way does
  step step_ = step::apply;
  pass_type* current_ = nullptr;  // where it was moved to last; null between passes
};

}  // namespace tutti::grad
