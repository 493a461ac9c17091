#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

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

  void require_idle(const char* call) const;
  /// What both kinds of passes begin with; returns the weight of all that has been accumulated, and of this.
  double start(double weight);
  /// Of a pass that only adds to the gradients.
  void start_accumulating(double weight);
  void leave_out_never_used();

  void ready(std::size_t i);
  void unused(std::size_t i);
  void rest_unused();
  void skip(step why);

  /// The end of a pass that accumulates.
  step stop_accumulating();
  /// Of one that reduces: what is delayed needs no mark, all others have one.
  void mark_the_rest();
  /// When all have been reduced.
  void settle_accounts();
  [[nodiscard]] bool carrying() const noexcept { return carrying_; }
  void forget_carried() noexcept {
    carrying_ = false;
    carried_weight_ = 0;
  }

  void let_go() noexcept {
    rebuilding_ = false;
    if (current_) std::exchange(current_, nullptr)->owner_ = nullptr;
  }
  void drop() noexcept;

  /// For a new plan, and for the first.
  void prepare_buckets();

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
  void leave_out(std::size_t i, const char* call);
};

}  // namespace tutti::grad::detail
