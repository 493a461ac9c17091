#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
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
#include <tutti/grad/order_watch.hpp>
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
/// sizes. The weights travel in a small collective that begin() starts, and the first bucket waits for it; with hooks
/// that do not divide, behind a bucket of float or double if there is one. Collective: made by all ranks, at most 4095,
/// with equal shapes and options (checked), one pass at a time. One thread at a time. The communicator outlives it.
/// Errors: usage_error for wrong shapes or marks; error on all ranks where one cannot begin; error as of all_reduce.
/// Costs one all_reduce per bucket, which divides, and where weights differ one multiplication per element.
template <class Comm, class Hook = sum_hook>
  requires reduction_hook<Hook, Comm>
class reducer {
 public:
  using pass_type = pass<reducer>;

  explicit reducer(Comm& world, std::span<const parameter_shape> shapes, reducer_options options = {}, Hook hook = {},
                   std::source_location where = std::source_location::current())
      : world_(&detail::countable(world)),
        hook_(std::move(hook)),
        options_(std::move(options)),
        marks_(shapes),
        arena_(detail::make_alike(
            world, "reducer", shapes,
            [&] {
              detail::let_check(hook_, options_);
              return detail::make_arena(world, marks_, detail::layout_of(marks_, options_, options_.arrival));
            },
            [&](const arena& a) { return a.layout().id() ^ options_.id(); }, where)),
        scaled_(shapes.size()),
        usage_(shapes.size(), options_.unused, options_.graph),
        weights_(detail::scaling_of<Hook>, options_.predivide, world.size()),
        watch_(world.rank() == 0 && options_.replan == replan::on_drift ? options_.drift_passes : 0),
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
  /// The order in which gradients became ready on this rank, in the last pass that reduced and in which as many did as
  /// ever; those that did not come last. Empty before the first.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return marks_.arrival(); }

  /// How often the plan has changed, by rebuild() or by itself: equal on all ranks. Gradients moved with it.
  [[nodiscard]] std::uint64_t replans() const noexcept { return replans_; }

  /// The gradient of one parameter: write it in the backward pass, read the mean after finish(). Zero at first. Valid
  /// until the plan changes: in rebuild(), and with replan::on_drift in finish().
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
    detail::let_check(hook_, what);
    const double whole = start(weight);
    where_ = where;
    reduces_ = true;
    buckets_.begin();
    pass_type begun{*this};
    weights_.begin(*world_, whole, what, where);
    for (std::size_t i = 0; i < size(); ++i)
      if (usage_.never(i)) leave_out(i, "begin");
    return begun;
  }

  /// Begins a pass that sends nothing: the backward pass adds to the gradients, and the next begin() without
  /// `accumulate` reduces what has come together, with the weights of all these passes added up. Gradients need no
  /// mark: what is not told unused() counts as added to, and no later pass sets it to zero. Nothing divides by
  /// the number of passes but the caller.
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

  /// Lays the buckets out anew in the order of rank 0's arrival(); gradients keep their values, but where the result is
  /// true they lie elsewhere: fetch the views again. Collective, between passes; cheap where nothing changes. Errors:
  /// usage_error during a pass, and from begin() until it has ended; error{mismatch} on all ranks where another one
  /// begins a pass instead.
  [[nodiscard]] task<bool> rebuild(std::source_location where = std::source_location::current()) {
    require_idle("rebuild()");
    return lay_out_anew(where);
  }

 private:
  friend pass_type;
  using flight = detail::flight_t<Hook, Comm>;
  static constexpr bool averages = !detail::takes_as_is(detail::scaling_of<Hook>);

  task<bool> lay_out_anew(std::source_location where) {
    require_idle("rebuild()");       // also when it is awaited
    pass_type at_work{*this};  // dropped or failed, it ends the world: plans might differ
    reduces_ = rebuilding_ = true;
    std::vector<int> order = marks_.order();
    Comm& meeting = weights_.travel_alone() ? *world_ : buckets_.lane(0);  // where a pass begins
    co_await detail::agree_on_order(*world_, meeting, order, where);
    const bool changed = follow(order);
    let_go();
    co_return changed;
  }
  // In finish(), where all ranks have heard rank 0's wish.
  task<> replan_now() {
    std::vector<int> order = marks_.order();
    co_await buckets_.lane(0).broadcast(std::span{order}, 0, {}, where_);
    follow(order);
  }
  bool follow(const std::vector<int>& order) {
    plan better = detail::layout_of(marks_, options_, order);
    if (better == layout()) return false;
    arena moved = detail::make_arena(*world_, marks_, std::move(better));
    moved.copy_from(arena_);
    arena_ = std::move(moved);
    prepare_buckets();
    if constexpr (requires { hook_.reset(); }) hook_.reset();
    ++replans_;
    return true;
  }
  void prepare_buckets() {
    marks_.expect(layout().order());
    weights_.arrange(layout());
    watch_.follow(layout());
    buckets_.arrange(layout());
  }

  void require_idle(const char* call) const {
    if (rebuilding_) throw usage_error("reducer: " + std::string(call) + " during rebuild(); await it first");
    if (current_) throw usage_error("reducer: " + std::string(call) + " during a pass; finish it first");
  }
  /// What both kinds of passes begin with; returns the weight of all that has been accumulated, and of this.
  double start(double weight) {
    weight_digits::check(weight);
    weight_digits::check(carried_weight_ + weight);
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
    if (usage_.never(i)) marks_.refuse_change(i, "ready", "not used");
    marks_.mark(i, "ready");
    usage_.use(i);
    if (reduces_) marks_.arrive(i), complete(i);
  }
  void unused(std::size_t i) {
    marks_.check(i, "unused");
    if (usage_.never(i)) return;  // as is known
    if (reduces_ && weights_.mine() > 0 && usage_.always(i) && !usage_.used_here(i))
      marks_.refuse_change(i, "unused", "used");
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
    const std::size_t b = arena_.bucket_of(i);
    visit_gradient(layout().buckets[b].type, [&]<class T>() {  // at once, while caches hold it, if that is possible
      scaled_[i] = weights_.settled<T>();
      if (scaled_[i]) multiply(arena_.gradient<T>(i), weights_.before<T>());
    });
    buckets_.complete(b);
  }
  void advance() {
    try {
      buckets_.advance(departure());
    } catch (...) {
      give_up();
      detail::tell_apart(detail::calls_of_pass(weights_.mine()));
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
    weights_.settle<T>();
    for (const bucket_slot& s : k.slots)
      if (const auto i = static_cast<std::size_t>(s.parameter); !scaled_[i])
        multiply(arena_.gradient<T>(i), weights_.before<T>());
    weights_.put(b, tail);
    if (last) {
      step_flags::put(step_, tail.first(line), watch_.wants());
      if (tail.size() > line) usage_.put(weights_.mine(), tail.subspan(line));
    }
    return hook_(lane,
                 bucket_view<T>{b, elements, where_, k.slots, tail.size(), weights_.divisor<T>(), weights_.unit<T>()});
  }

  task<step> finish(pass_type given) {
    auto mine = std::move(given);  // a parameter lives as long as the task, this one as long as the body
    if (!reduces_) {
      carried_weight_ += more_weight_;
      carrying_ = true;
      for (std::size_t i = 0; more_weight_ > 0 && i < size(); ++i)
        if (!marks_.has(i) && !usage_.never(i)) usage_.use(i);
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
      co_await weights_.all_heard();
      co_await buckets_.finish(departure());
    } catch (...) {
      detail::tell_apart(detail::calls_of_pass(weights_.mine()));
    }
    weights_.learn_from(arena_);
    if (conclude() == wish::replan) co_await replan_now();
    let_go();
    co_return step_;
  }

  // What all ranks have learned, and the mean.
  wish conclude() {
    carrying_ = false;
    carried_weight_ = 0;
    if (marks_.learn_order())
      watch_.see(marks_.order(), [&](const auto& order) { return detail::layout_of(marks_, options_, order); });
    const auto& buckets = layout().buckets;
    wish heard = wish::none;
    if (buckets.empty()) return heard;
    visit_gradient(buckets.back().type, [&]<class T>() {
      const std::span<const T> tail = arena_.tail<T>(buckets.size() - 1);
      constexpr std::size_t line = line_elements<T>;
      step_ = step_flags::take(tail.first(line), weights_.divisor<T>());
      heard = step_flags::take_wish(tail.first(line), weights_.divisor<T>());
      if (usage_.map_count() != 0) usage_.take(tail.subspan(line));
    });
    if (step_ != step::apply) {
      if constexpr (requires { hook_.forget_pass(); }) hook_.forget_pass();
      return wish::none;
    }
    for (std::size_t b = 0; averages && b < buckets.size(); ++b)
      visit_gradient(buckets[b].type, [&]<class T>() {
        const auto sums = arena_.bucket_with_tail<T>(b).first(buckets[b].count);
        // Of nothing but weights of 0 the result is 0, even where a hook sends what it left out before.
        weights_.total() > 0 ? divide(sums, weights_.after<T>()) : multiply(sums, 0);
      });
    usage_.restore(arena_);
    usage_.learn(weights_.mine());
    return heard;
  }

  void let_go() noexcept {
    rebuilding_ = false;
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
  std::vector<char> scaled_;  // gradients of the pass under way that have been multiplied
  usage usage_;
  weighing weights_;
  order_watch watch_;
  detail::launcher<Comm, Hook> buckets_;
  std::source_location where_;
  double carried_weight_ = 0;  // of the passes that accumulated
  double more_weight_ = 0;     // of the one under way, if it does
  bool carrying_ = false;      // there were some since the last pass that reduced
  bool reduces_ = true;        // the pass under way does
  bool rebuilding_ = false;
  std::uint64_t replans_ = 0;
  step step_ = step::apply;
  pass_type* current_ = nullptr;  // where it was moved to last; null between passes
};

}  // namespace tutti::grad
