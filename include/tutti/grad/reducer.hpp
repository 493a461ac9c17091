#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/agreement.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/launcher.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/marks.hpp>
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
/// gradient is ready, by default in the same order on all ranks, and the result is the weighted mean for any batch
/// sizes. The weights travel behind a bucket of float or double; where there is none, or float16 needs their sum first
/// so that its own sums do not overflow, in a small collective that begin() starts. Collective: constructed by all
/// ranks, at most 4095, with equal shapes and options (checked), one pass at a time. One thread at a time. The
/// communicator must outlive it.
/// Errors: usage_error for wrong shapes or marks; error on all ranks where one cannot begin; error as of all_reduce.
/// Costs one all_reduce per bucket and one multiplication and one division per element.
template <class Comm, class Hook = sum_hook>
  requires reduction_hook<Hook, Comm>
class reducer {
 public:
  using pass_type = pass<reducer>;

  explicit reducer(Comm& world, std::span<const parameter_shape> shapes, reducer_options options = {}, Hook hook = {},
                   std::source_location where = std::source_location::current())
      : world_(&countable(world)),
        hook_(std::move(hook)),
        options_(std::move(options)),
        marks_(shapes),
        arena_(detail::make_alike(
            world, "reducer", shapes,
            [&] {
              hook_checks(options_);
              return make_arena(detail::layout_of(marks_, options_, options_.arrival));
            },
            [&](const arena& a) { return a.layout().id() ^ options_.id(); }, where)),
        usage_(shapes.size(), options_.unused, options_.graph),
        weights_(detail::scaling_of<Hook>, options_.predivide),
        buckets_(world, options_.order, options_.in_flight) {
    prepare_buckets();
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  ~reducer() {
    if (current_) drop();
  }

  [[nodiscard]] std::size_t size() const noexcept { return marks_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return arena_.layout(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.bytes(); }
  [[nodiscard]] Hook& hook() noexcept { return hook_; }
  /// The sum of all ranks' weights in the last pass; 0 before the first, and when all ranks have run out of samples.
  [[nodiscard]] double total_weight() const noexcept { return weights_.total(); }
  /// False where unused parameters are tracked and no rank used this one in the last pass: it is not to be stepped.
  [[nodiscard]] bool used(std::size_t parameter) const {
    marks_.check(parameter, "used");
    return usage_.used_anywhere(parameter);
  }
  /// The order in which this rank marked its gradients in the last pass that reduced; empty before.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return marks_.arrival(); }

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
    hook_checks(what);
    const double whole = start(weight);
    where_ = where;
    reduces_ = true;
    marks_.forget_arrival();
    buckets_.begin();
    pass_type begun{*this};
    weights_.begin(*world_, whole, what, where);
    for (std::size_t i = 0; i < size(); ++i)
      if (usage_.never(i)) leave_out(i, "begin");
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

  /// Forgets what passes that accumulate have left: their weights, their marks, and that one of them was dropped or
  /// skipped. All gradients become zero. Each rank by itself, between passes. Throws usage_error during a pass.
  void discard() {
    require_idle("discard()");
    carrying_ = false;
    carried_weight_ = 0;
    arena_.clear();
  }

  /// Lays the buckets out anew in the order in which gradients arrived at rank 0 in the last pass; gradients keep their
  /// values, but where the result is true they lie elsewhere: fetch the views again. Collective, between passes; cheap
  /// where nothing changes. Errors: usage_error during a pass, and from begin() until it has ended; error{mismatch} on
  /// all ranks where another one begins a pass instead.
  [[nodiscard]] task<bool> rebuild(std::source_location where = std::source_location::current()) {
    require_idle("rebuild()");
    return lay_out_anew(where);
  }

 private:
  friend pass_type;
  using flight = detail::flight_t<Hook, Comm>;
  static constexpr bool weighted = detail::scaling_of<Hook> == scaling::weighted;

  task<bool> lay_out_anew(std::source_location where) {
    require_idle("rebuild()");  // also when it is awaited
    const moving_on at_work{rebuilding_};
    std::vector<int> order(arrival().begin(), arrival().end());
    if (order.size() != size()) order = layout().order();
    Comm& meeting = weights_.travel_alone() ? *world_ : buckets_.lane(0);  // where a pass begins
    co_await detail::agree_on_order(*world_, meeting, order, where);
    try {
      plan better = detail::layout_of(marks_, options_, order);
      if (better == layout()) co_return false;
      arena moved = make_arena(std::move(better));
      moved.copy_from(arena_);
      arena_ = std::move(moved);
      prepare_buckets();
      if constexpr (requires { hook_.reset(); }) hook_.reset();
    } catch (...) {
      world_->abort();
      throw;
    }
    co_return true;
  }

  struct moving_on {
    explicit moving_on(bool& flag) noexcept : on(&flag) { *on = true; }
    moving_on(const moving_on&) = delete;
    moving_on& operator=(const moving_on&) = delete;
    ~moving_on() { *on = false; }
    bool* on;
  };

  static Comm& countable(Comm& world) {
    if (world.size() > step_flags::most_ranks)
      throw usage_error("reducer: weights and flags of more than " + std::to_string(step_flags::most_ranks) +
                        " ranks do not add up exactly; reduce in groups");
    return world;
  }
  template <class What>
  void hook_checks(const What& what) const {
    if constexpr (requires { hook_.check(what); }) hook_.check(what);
  }
  [[nodiscard]] arena make_arena(plan p) const {
    return arena(marks_.shapes(), std::move(p), [&](std::size_t n) { return world_->template allocate<std::byte>(n); });
  }
  void prepare_buckets() {
    weights_.arrange(layout());
    buckets_.arrange(layout());
  }

  void require_idle(const char* call) const {
    if (current_) throw usage_error("reducer: " + std::string(call) + " during a pass; finish it first");
    if (rebuilding_) throw usage_error("reducer: " + std::string(call) + " during rebuild(); await it first");
  }
  /// What both kinds of passes begin with; returns the weight of all that has been accumulated, and of this.
  double start(double weight) {
    weight_digits::check(weight);
    weight_digits::check(carried_weight_ + weight);
    if (current_) throw usage_error("reducer: begin() before the previous pass was finished");
    require_idle("begin()");
    if (!carrying_) {
      usage_.clear();
      step_ = step::apply;
    }
    marks_.clear();
    return carried_weight_ + weight;
  }

  void ready(std::size_t i) {
    marks_.check(i, "ready");
    if (usage_.never(i))
      throw usage_error("ready: " + marks_.label(i) +
                        " was not used in the first pass, and the graph is fixed; where passes differ it is dynamic");
    marks_.mark(i, "ready");
    usage_.use(i);
    if (reduces_) complete(i);
  }
  void unused(std::size_t i) {
    marks_.check(i, "unused");
    if (usage_.never(i)) return;  // as is known
    if (reduces_ && weights_.mine() > 0 && usage_.always(i) && !usage_.used_here(i))
      throw usage_error("unused: " + marks_.label(i) +
                        " was used in the first pass, and the graph is fixed; where passes differ it is dynamic");
    if (reduces_)
      leave_out(i, "unused");
    else
      marks_.mark(i, "unused");
  }
  void rest_unused() {
    for (std::size_t i = 0; i < size(); ++i)
      if (!marks_.has(i) && !arena_.is_delayed(i)) unused(i);
  }
  void skip(step why) {
    if (why == step::apply) throw usage_error("skip: say why, by one of the other values of grad::step");
    if (reduces_ && buckets_.all_left() && why > step_)
      throw usage_error("skip: all gradients are marked, and the peers have been told so; skip before the last mark");
    step_ = std::max(step_, why);
    if (!reduces_) carrying_ = true;  // also where this pass is dropped: what it has added stays
    for (std::size_t i = 0; reduces_ && i < size(); ++i) {
      if (marks_.has(i) || arena_.is_delayed(i)) continue;
      marks_.mark(i, "skip");
      complete(i);
    }
  }

  // A gradient that this pass does not use contributes zero.
  void leave_out(std::size_t i, const char* call) {
    marks_.mark(i, call);
    try {
      if (!usage_.used_here(i))
        visit_gradient(marks_.shapes()[i].type, [&]<class T>() { usage_.leave_out(i, arena_.gradient<T>(i)); });
    } catch (...) {
      give_up();
      throw;
    }
    complete(i);
  }

  void complete(std::size_t i) {
    weigh(i);
    advance();
    world_->engine().poll();
    if (buckets_.bounded()) advance();
  }
  void weigh(std::size_t i) {
    marks_.arrive(i);
    const std::size_t b = arena_.bucket_of(i);
    visit_gradient(layout().buckets[b].type, [&]<class T>() {
      if constexpr (!std::same_as<T, float16>) multiply(arena_.gradient<T>(i), weights_.before<T>());
    });
    buckets_.complete(b);
  }
  void advance() {
    try {
      buckets_.advance(departure());
    } catch (...) {
      give_up();
      detail::tell_apart("begin() on this rank, and rebuild()");
    }
  }
  auto departure() {
    return [this](std::size_t b, Comm& lane) {
      return visit_gradient(layout().buckets[b].type, [&]<class T>() { return depart<T>(b, lane); });
    };
  }
  template <class T>
  flight depart(std::size_t b, Comm& lane) {
    const bucket& k = layout().buckets[b];
    constexpr std::size_t line = line_elements<T>;
    const bool last = b + 1 == layout().buckets.size();
    const auto tail = arena_.tail<T>(b).first(last && usage_.map_count() == 0 ? line : arena_.tail<T>(b).size());
    const auto elements = arena_.bucket_with_tail<T>(b).first(k.count + tail.size());
    // Waits, and does not leave this bucket to a later mark: its place among the collectives that the user issues
    // between marks must not depend on when messages arrive.
    if constexpr (std::same_as<T, float16>) multiply(elements.first(k.count), weights_.before<T>());
    weights_.put(b, tail);
    if (last) {
      step_flags::put(step_, tail.first(line));
      if (tail.size() > line) usage_.put(weights_.mine(), tail.subspan(line));
    }
    return hook_(lane, bucket_view<T>{b, elements, where_, k.slots, tail.size()});
  }

  task<step> finish(pass_type given) {
    auto mine = std::move(given);  // a parameter lives as long as the task, this one as long as the body
    if (!reduces_) {
      carried_weight_ += more_weight_;
      carrying_ = true;
      let_go();
      co_return step_;
    }
    for (std::size_t i = 0; i < size(); ++i) {
      if (marks_.has(i) || !arena_.is_delayed(i)) continue;
      marks_.mark(i, "finish");
      if (weights_.mine() > 0) usage_.use(i);
      weigh(i);
    }
    marks_.require_all();
    try {
      co_await buckets_.finish(departure());
      if (auto weights = weights_.flight()) co_await *std::move(weights);
    } catch (...) {
      detail::tell_apart("begin() on this rank, and rebuild()");
    }
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
      if (usage_.map_count() != 0) usage_.take(tail.subspan(line));
    });
    if (step_ != step::apply) {
      if constexpr (requires { hook_.forget_pass(); }) hook_.forget_pass();
      return;
    }
    for (std::size_t b = 0; weighted && b < buckets.size(); ++b)
      visit_gradient(buckets[b].type, [&]<class T>() {
        const auto sums = arena_.bucket_with_tail<T>(b).first(buckets[b].count);
        // Of nothing but weights of 0 the result is 0, even where a hook sends what it left out before.
        weights_.total() > 0 ? divide(sums, weights_.after<T>()) : multiply(sums, 0);
      });
    usage_.restore(arena_);
    usage_.learn(weights_.mine());
  }

  void let_go() noexcept {
    if (current_) std::exchange(current_, nullptr)->owner_ = nullptr;
  }
  void drop() noexcept {
    if (reduces_) return give_up();
    step_ = std::max(step_, step::skip_failure);  // what it has added is there, and not whole
    carrying_ = true;
    let_go();
  }
  void give_up() noexcept {
    world_->abort();
    buckets_.drop();
    weights_.forget();
    let_go();
  }

  Comm* world_;
  Hook hook_;
  reducer_options options_;
  marks marks_;
  arena arena_;
  usage usage_;
  weighing weights_;
  detail::launcher<Comm, Hook> buckets_;
  std::source_location where_;
  double carried_weight_ = 0;  // of the passes that accumulated
  double more_weight_ = 0;     // of the one under way, if it does
  bool carrying_ = false;      // there were some since the last pass that reduced
  bool reduces_ = true;        // the pass under way does
  bool rebuilding_ = false;
  step step_ = step::apply;
  pass_type* current_ = nullptr;  // where it was moved to last; null between passes
};

}  // namespace tutti::grad
