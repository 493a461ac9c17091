#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/marks.hpp>
#include <tutti/grad/order_watch.hpp>
#include <tutti/grad/pass.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/usage.hpp>
#include <tutti/grad/weighing.hpp>

namespace tutti::grad::detail {

/// What a reducer knows of its passes, wherever its gradients lie: which are marked and used, which weights have come
/// together, and how the pass ends. `Reducer` derives from it, and does what touches gradients or sends them: it has
/// `arena_`, a placement, `weights_`, a weighing, `buckets_`, a launcher, and
///   zero(i)      gradient i becomes zero, which is what this rank contributes; kept where the map may say so
///   count_in(i)  gradient i is as it travels
///   complete(i)  the same, and what may leave leaves
///   give_up(why) ends the pass and the world; why: see status::detail
template <class Reducer>
class ledger {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return marks_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return self().arena_.layout(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return self().arena_.bytes(); }
  /// The sum of all ranks' weights in the last pass; 0 before the first, and when all ranks have run out of samples.
  [[nodiscard]] double total_weight() const noexcept { return self().weights_.total(); }
  /// False where unused parameters are tracked and no rank used this one in the last pass: it is not to be stepped.
  [[nodiscard]] bool used(std::size_t parameter) const {
    marks_.check(parameter, "used");
    return usage_.used_anywhere(parameter);
  }
  /// The order in which gradients became ready on this rank, in the last pass that reduced and in which as many did as
  /// ever; those that did not come last. Empty before the first.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return marks_.arrival(); }
  /// How often the plan has changed, by rebuild() or by itself: equal on all ranks. Gradients moved with it.
  [[nodiscard]] std::uint64_t replans() const noexcept { return plans_ - 1; }

 protected:
  ledger(std::span<const parameter_shape> shapes, reducer_options options, int rank)
      : options_(std::move(options)),
        marks_(shapes),
        usage_(shapes.size(), options_.unused, options_.graph),
        watch_(rank == 0 && options_.replan == replan::on_drift ? options_.drift_passes : 0) {}
  ledger(const ledger&) = delete;
  ledger& operator=(const ledger&) = delete;
  ~ledger() = default;

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
  /// Of a pass that only adds to the gradients.
  void start_accumulating(double weight) {
    (void)start(weight);
    reduces_ = false;
    more_weight_ = weight;
  }
  void leave_out_never_used() {
    for (std::size_t i = 0; i < size(); ++i)
      if (usage_.never(i)) leave_out(i, "begin");
  }

  void ready(std::size_t i) {
    marks_.check(i, "ready");
    if (usage_.never(i)) marks_.refuse_change(i, "ready", "not used");
    marks_.mark(i, "ready");
    usage_.use(i);
    if (reduces_) marks_.arrive(i), self().complete(i);
  }
  void unused(std::size_t i) {
    marks_.check(i, "unused");
    if (usage_.never(i)) return;  // as is known
    if (reduces_ && self().weights_.mine() > 0 && usage_.always(i) && !usage_.used_here(i))
      marks_.refuse_change(i, "unused", "used");
    if (reduces_)
      leave_out(i, "unused");
    else
      marks_.mark(i, "unused");
  }
  void rest_unused() {
    for (std::size_t i = 0; i < size(); ++i)
      if (!marks_.has(i) && !self().arena_.is_delayed(i)) unused(i);
  }
  void skip(step why) {
    if (why == step::apply) throw usage_error("skip: say why, by one of the other values of grad::step");
    if (reduces_ && size() != 0 && self().buckets_.all_left() && why > step_)
      throw usage_error("skip: all gradients are marked, and the peers have been told so; skip before the last mark");
    step_ = std::max(step_, why);
    if (!reduces_) carrying_ = true;  // also where this pass is dropped: what it has added stays
    for (std::size_t i = 0; reduces_ && i < size(); ++i) {
      if (marks_.has(i) || self().arena_.is_delayed(i)) continue;
      marks_.mark(i, "skip");
      self().complete(i);
    }
  }

  /// The end of a pass that accumulates.
  step stop_accumulating() {
    carried_weight_ += more_weight_;
    carrying_ = true;
    for (std::size_t i = 0; more_weight_ > 0 && i < size(); ++i)
      if (!marks_.has(i) && !usage_.never(i)) usage_.use(i);
    let_go();
    return step_;
  }
  /// Of one that reduces: what is delayed needs no mark, all others have one.
  void mark_the_rest() {
    for (std::size_t i = 0; i < size(); ++i) {
      if (marks_.has(i) || !self().arena_.is_delayed(i)) continue;
      marks_.mark(i, "finish");
      if (self().weights_.mine() > 0) usage_.use(i);
      self().count_in(i);
    }
    marks_.require_all();
  }
  /// When all have been reduced.
  void settle_accounts() {
    forget_carried();
    if (marks_.learn_order())
      watch_.see(marks_.order(), [&](const auto& order) { return layout_of(marks_, options_, order); });
  }
  [[nodiscard]] bool carrying() const noexcept { return carrying_; }
  void forget_carried() noexcept {
    carrying_ = false;
    carried_weight_ = 0;
  }

  void let_go() noexcept {
    rebuilding_ = false;
    if (current_) std::exchange(current_, nullptr)->owner_ = nullptr;
  }
  void drop() noexcept {
    if (reduces_) return self().give_up(status::pass_dropped);
    step_ = std::max(step_, step::skip_failure);  // what it has added is there, and not whole
    carrying_ = true;
    let_go();
  }

  /// For a new plan, and for the first.
  void prepare_buckets() {
    marks_.expect(layout().order());
    self().weights_.arrange(layout(), options_.order);
    watch_.follow(layout());
    self().buckets_.arrange(layout());
    ++plans_;
  }

  reducer_options options_;
  marks marks_;
  usage usage_;
  order_watch watch_;
  bool reduces_ = true;  // the pass under way does
  bool rebuilding_ = false;
  step step_ = step::apply;
  pass_base<Reducer>* current_ = nullptr;  // where it was moved to last; null between passes

 private:
  friend pass_base<Reducer>;

  std::uint64_t plans_ = 0;    // so far
  double carried_weight_ = 0;  // of the passes that accumulated
  double more_weight_ = 0;     // of the one under way, if it does
  bool carrying_ = false;      // there were some since the last pass that reduced

  [[nodiscard]] Reducer& self() noexcept { return static_cast<Reducer&>(*this); }
  [[nodiscard]] const Reducer& self() const noexcept { return static_cast<const Reducer&>(*this); }

  // A gradient that this pass does not use contributes zero.
  void leave_out(std::size_t i, const char* call) {
    marks_.mark(i, call);
    try {
      if (!usage_.used_here(i)) self().zero(i);
    } catch (...) {
      self().give_up();
      throw;
    }
    self().complete(i);
  }
};

}  // namespace tutti::grad::detail
