#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <tutti/grad/pass.hpp>
#include <tutti/grad/pass/ready_tracker.hpp>
#include <tutti/grad/pass/replan_detector.hpp>
#include <tutti/grad/pass/usage.hpp>
#include <tutti/grad/pass/weight_sync.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad::detail {

/// The state of a reducer's passes, independent of the gradients' memory: marks and usage, accumulated weights, and the
/// end of a pass. `Reducer` derives from it, and touches and sends the gradients: it has `arena_`, a placement,
/// `weights_`, a weight_sync, `buckets_`, a launcher, and
///   zero(i)      sets gradient i to zero, this rank's contribution; keeps its value if the usage map may restore it
///   count_in(i)  records that gradient i has its final value
///   complete(i)  the same, and launches the buckets that may be launched
///   give_up(why) ends the pass and the world; why: see status::detail
template <class Reducer>
class pass_state {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return marks_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return self().arena_.layout(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return self().arena_.bytes(); }
  /// Returns the sum of all ranks' weights in the last pass; 0 before the first, and if all weights were 0.
  [[nodiscard]] double total_weight() const noexcept { return self().weights_.total(); }
  /// Returns false if unused parameters are tracked and no rank used this one in the last pass: the optimizer must skip
  /// it.
  [[nodiscard]] bool used(std::size_t parameter) const {
    marks_.check(parameter, "used");
    return usage_.used_anywhere(parameter);
  }
  /// Returns the order in which gradients became ready on this rank, in the last pass that reduced and in which as many
  /// did as ever; the others come last. Empty before the first such pass.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return marks_.arrival(); }
  /// Returns the number of changes of the plan, by rebuild() or by itself: equal on all ranks. Each moved the
  /// gradients.
  [[nodiscard]] std::uint64_t replans() const noexcept { return plans_ - 1; }

 protected:
  pass_state(std::span<const parameter_shape> shapes, reducer_options options, int rank)
      : options_(std::move(options)),
        marks_(shapes),
        usage_(shapes.size(), options_.unused, options_.graph),
        watch_(rank == 0 && options_.replan == replan::on_drift ? options_.drift_passes : 0) {}
  pass_state(const pass_state&) = delete;
  pass_state& operator=(const pass_state&) = delete;
  ~pass_state() = default;

  void require_idle(const char* call) const;
  /// Begins a pass of either kind. Returns the sum of its weight and those that have been accumulated.
  double start(double weight);
  /// Begins a pass that only adds to the gradients.
  void start_accumulating(double weight);
  void leave_out_never_used();

  void ready(std::size_t i);
  void unused(std::size_t i);
  void rest_unused();
  void skip(step why);

  /// Ends a pass that accumulates.
  step stop_accumulating();
  /// Ends the marks of a pass that reduces: marks the delayed parameters, and requires that all others are marked.
  void mark_the_rest();
  /// Updates the state after all buckets have been reduced.
  void finish_accounts();
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

  /// Prepares for the first plan, and for each new one.
  void prepare_buckets();

  reducer_options options_;
  ready_tracker marks_;
  usage usage_;
  replan_detector watch_;
  bool reduces_ = true;  // the current pass does
  bool rebuilding_ = false;
  step step_ = step::apply;
  pass_base<Reducer>* current_ = nullptr;  // the current pass object; null between passes

 private:
  friend pass_base<Reducer>;

  std::uint64_t plans_ = 0;    // plans so far
  double carried_weight_ = 0;  // the sum of the passes that accumulated
  double more_weight_ = 0;     // of the current pass, if it accumulates
  bool carrying_ = false;      // passes accumulated since the last one that reduced

  [[nodiscard]] Reducer& self() noexcept { return static_cast<Reducer&>(*this); }
  [[nodiscard]] const Reducer& self() const noexcept { return static_cast<const Reducer&>(*this); }

  // Sets a gradient that this pass does not use to zero.
  void leave_out(std::size_t i, const char* call);
};

}  // namespace tutti::grad::detail
