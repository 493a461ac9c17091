#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/grad/pass/pass_link.hpp>
#include <tutti/grad/pass/ready_tracker.hpp>
#include <tutti/grad/pass/replan_detector.hpp>
#include <tutti/grad/pass/usage.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad::detail {

/// The work that a mark leaves to the reducer.
enum class pass_action : std::uint8_t {
  nothing,         ///< none: the mark has been recorded
  reduce,          ///< count the gradient in its bucket, as it has its final value, and launch what may be launched
  zero_and_reduce  ///< set it to zero, this rank's contribution, first; save its value if usage may restore it
};

/// The state of a reducer's passes: marks, usage, weights and step, but neither the memory of gradients nor operations.
/// Member of a reducer, whose user's calls it checks and records; it returns what the reducer has to do, and calls
/// nothing of the reducer's. Errors: usage_error for a call that the state does not allow, which changes nothing.
class pass_state {
 public:
  pass_state(std::span<const parameter_shape> shapes, reducer_options options, int rank);
  pass_state(const pass_state&) = delete;
  pass_state& operator=(const pass_state&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return marks_.size(); }
  [[nodiscard]] const reducer_options& options() const noexcept { return options_; }
  [[nodiscard]] const ready_tracker& marks() const noexcept { return marks_; }
  [[nodiscard]] usage& usage_map() noexcept { return usage_; }
  [[nodiscard]] const usage& usage_map() const noexcept { return usage_; }
  /// See reducer::used() and reducer::replans().
  [[nodiscard]] bool used(std::size_t parameter) const;
  [[nodiscard]] std::uint64_t replans() const noexcept { return plans_ - 1; }

  /// Lays all plans out in memory of the caller's, whose description outlives this object.
  void lie_in(const caller_layout& own) noexcept { own_ = own; }
  /// Returns the plan for an order in which gradients become ready.
  [[nodiscard]] plan plan_for(std::span<const int> ready_order) const;
  /// Prepares for the first plan, and for each new one.
  void arrange(const plan& p);

  /// Throws if a pass has begun and not ended, or if the reducer is being laid out anew.
  void require_idle(const char* call) const;
  /// Begins a pass that reduces, after those that have accumulated: weight() is the sum of theirs and of its own.
  void begin(double weight);
  /// Begins a pass that only adds to the gradients.
  void begin_accumulating(double weight);
  /// Begins rebuild(): if it fails, it ends like a pass that reduces.
  void begin_rebuild() noexcept { reduces_ = rebuilding_ = true; }
  /// Returns the pointer to the user's end of the pass, for its constructor; null between passes.
  [[nodiscard]] pass_link*& link() noexcept { return link_; }
  [[nodiscard]] bool active() const noexcept { return link_ != nullptr; }
  [[nodiscard]] bool reduces() const noexcept { return reduces_; }
  [[nodiscard]] double weight() const noexcept { return weight_; }

  /// Record the user's marks. A mark that skip() has made stays as it is.
  [[nodiscard]] pass_action ready(std::size_t i);
  [[nodiscard]] pass_action unused(std::size_t i) { return unused(i, mark::call); }
  /// Mark parameter i as left out, if that applies to it, for a reducer that goes through all: in begin(), those that a
  /// fixed graph never uses; in rest_unused(), and in skip() after the function of that name, those that have no mark
  /// and are not delayed.
  [[nodiscard]] pass_action leave_out_never_used(std::size_t i);
  [[nodiscard]] pass_action leave_out_rest(std::size_t i);
  [[nodiscard]] pass_action skip_rest(std::size_t i);
  /// Marks parameter i in finish() if it is delayed and has no mark. Returns true if it must be counted in its bucket.
  [[nodiscard]] bool mark_delayed(std::size_t i);
  void require_all_marked() const { marks_.require_all(); }

  /// Records that this rank skips the step.
  void skip(step why);
  /// Returns this rank's step so far, and refuses any skip that would still change it. Called as the last bucket
  /// leaves.
  [[nodiscard]] step commit_step() noexcept {
    committed_ = true;
    return step_;
  }
  /// Returns this rank's step so far; after agree(), that of all ranks.
  [[nodiscard]] step so_far() const noexcept { return step_; }
  void agree(step of_all) noexcept { step_ = of_all; }
  /// Returns this rank's request for the other ranks, which counts if it is rank 0.
  [[nodiscard]] request wants() const noexcept { return watch_.wants(); }

  /// Updates the state after all buckets have been reduced; then the pass can end.
  void finish();
  /// Ends a pass that accumulates. Returns this rank's step so far.
  step finish_accumulating() noexcept;
  /// Ends a pass that accumulates and was dropped: all ranks will skip the step.
  void drop_accumulating() noexcept;
  /// Ends the pass for the user's object.
  void end() noexcept;

  [[nodiscard]] bool has_accumulated() const noexcept { return carrying_; }
  void forget_accumulated() noexcept {
    carrying_ = false;
    carried_weight_ = 0;
  }

 private:
  void start(double weight);
  pass_action unused(std::size_t i, mark by);
  pass_action leave_out(std::size_t i, const char* call, mark by);

  reducer_options options_;
  caller_layout own_;
  ready_tracker marks_;
  usage usage_;
  replan_detector watch_;
  std::vector<char> delayed_;  // parameters whose buckets wait for finish()
  std::uint64_t plans_ = 0;    // plans so far
  bool reduces_ = true;        // the current pass does
  bool rebuilding_ = false;
  bool committed_ = false;  // the last bucket has left with the step
  bool carrying_ = false;   // passes accumulated since the last one that reduced
  step step_ = step::apply;
  double weight_ = 1;          // of the current pass
  double carried_weight_ = 0;  // the sum of the passes that accumulated
  pass_link* link_ = nullptr;
};

}  // namespace tutti::grad::detail

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/pass_state.hpp>
#endif
