#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/own_memory.hpp>
#include <tutti/grad/pass.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/pass/bucket_times.hpp>
#include <tutti/grad/pass/external_gradients.hpp>
#include <tutti/grad/pass/launcher.hpp>
#include <tutti/grad/pass/pass_state.hpp>
#include <tutti/grad/pass/weight_sync.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

/// A reducer: averages gradients over ranks while the backward pass still computes; the DistributedDataParallel of C++.
///
/// Gradients are views into the reducer's arena, or memory of the caller's. In a pass, every bucket is summed over the
/// ranks once its last gradient is ready, by default in the same order on all ranks, and the result is the weighted
/// mean for any batch sizes. The weights are sent in a small collective that begin() starts, and the first bucket waits
/// for it; with hooks that do not divide, they are sent behind a bucket of float or double if there is one. Collective:
/// constructed by all ranks, at most 4095, with equal shapes and options (checked), one pass at a time. One thread at a
/// time. The communicator must outlive it. Errors: usage_error for wrong shapes or marks; error on all ranks if one
/// cannot begin; error as of all_reduce. Costs one all_reduce per bucket, which divides, and one multiplication per
/// element if weights differ.
template <class Comm, class Hook = sum_hook>
  requires reduction_hook<Hook, Comm>
class reducer {
 public:
  using pass_type = pass<reducer>;

  explicit reducer(Comm& world, std::span<const parameter_shape> shapes, reducer_options options = {}, Hook hook = {},
                   std::source_location where = std::source_location::current())
      : reducer(world, shapes, own_memory{}, std::move(options), std::move(hook), where) {}
  /// Leaves the gradients in `own`, memory of the caller's, in place: one block, or a range of blocks, that parameters
  /// fill in the order of registration without gaps. On one machine it is as fast as the arena if the caller has
  /// registered it (communicator::register_buffer), or has it from allocate(). A bucket may be several ranges of it if
  /// the hook `lists`, as sum_hook, mean_hook and divide_after_hook do without `via`; else it closes where a range
  /// ends. The memory must outlive this object. Sends one more all_reduce of 64 bytes in each pass. Also a usage_error:
  /// blocks that are not those of the shapes, and blocks that overlap.
  template <gradient_memory Own>
  reducer(Comm& world, std::span<const parameter_shape> shapes, Own&& own, reducer_options options = {}, Hook hook = {},
          std::source_location where = std::source_location::current())
      : reducer(world, shapes, own_memory{std::forward<Own>(own)}, std::move(options), std::move(hook), where) {}
  /// Deleted for memory that cannot hold gradients, with the reason in the compiler's message.
  template <class Own, detail::memory_error Why = detail::error_of_memory<Own>()>
    requires(Why != detail::memory_error::none)
  reducer(Comm& world, std::span<const parameter_shape> shapes, Own&& own, reducer_options options = {}, Hook hook = {},
          std::source_location where = std::source_location::current()) = delete;
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  ~reducer() {
    if (pass_.active()) drop();
  }

  [[nodiscard]] Hook& hook() noexcept { return hook_; }
  /// Returns the number of parameters.
  [[nodiscard]] std::size_t size() const noexcept { return pass_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return arena_.layout(); }
  /// Returns the bytes of memory that the gradients take.
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.bytes(); }
  /// Returns the sum of all ranks' weights in the last pass; 0 before the first, and if all weights were 0.
  [[nodiscard]] double total_weight() const noexcept { return weights_.total(); }
  /// Returns false if unused parameters are tracked and no rank used this one in the last pass: the optimizer must skip
  /// it.
  [[nodiscard]] bool used(std::size_t parameter) const { return pass_.used(parameter); }
  /// Returns the order in which gradients became ready on this rank, in the last pass that reduced and in which as many
  /// did as ever; the others come last. Empty before the first such pass.
  [[nodiscard]] std::span<const int> ready_order() const noexcept { return pass_.marks().ready_order(); }
  /// Returns the number of changes of the plan, by rebuild() or by itself: equal on all ranks. Each moved the
  /// gradients.
  [[nodiscard]] std::uint64_t replans() const noexcept { return pass_.replans(); }
  /// Returns the gradient of one parameter: write it in the backward pass, read the mean after finish(). Zero at first.
  /// Valid until the plan changes: in rebuild(), and with replan::on_drift in finish(). Memory of the caller's keeps
  /// its content and its places.
  template <number T>
  [[nodiscard]] std::span<T> gradient(std::size_t parameter) const {
    return arena_.gradient<T>(parameter);
  }
  /// Returns all gradients, if they have one type.
  template <number T = float>
  [[nodiscard]] std::vector<std::span<T>> gradients() const {
    std::vector<std::span<T>> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back(arena_.gradient<T>(i));
    return all;
  }

  /// Begins a pass. `weight` is the weight of this rank's gradients in the mean: its number of samples or tokens; 0
  /// contributes nothing, and if all weights are 0 the result is 0. Throws usage_error while another pass has not
  /// ended.
  [[nodiscard]] pass_type begin(double weight = 1, contribution what = contribution::mean,
                                std::source_location where = std::source_location::current());

  /// Begins a pass that sends nothing: the backward pass adds to the gradients, and the next begin() without
  /// `accumulate` reduces the sums, with the weights of all these passes added up. Gradients need no mark: those not
  /// marked unused() count as added to, and no later pass sets them to zero. The caller divides by the number of
  /// passes, if desired.
  [[nodiscard]] pass_type begin(accumulate_t, double weight = 1) {
    pass_.begin_accumulating(weight);
    return pass_type{*this};
  }

  /// Discards the state of passes that accumulated: their weights, their marks, and that one of them was dropped or
  /// skipped. Sets all gradients to zero. Not collective; between passes. Throws usage_error during a pass.
  void discard() {
    pass_.require_idle("discard()");
    pass_.forget_accumulated();
    arena_.clear();
  }

  /// Lays the buckets out anew in the order of rank 0's ready_order(). Gradients keep their values, but if it returns
  /// true they have moved: fetch the views again. Collective, between passes; cheap if nothing changes. Errors:
  /// usage_error during a pass, and from begin() until the task has ended; error{mismatch} on all ranks if another rank
  /// begins a pass instead.
  [[nodiscard]] task<bool> rebuild(std::source_location where = std::source_location::current()) {
    pass_.require_idle("rebuild()");
    return lay_out_anew(where);
  }

 private:
  reducer(Comm& world, std::span<const parameter_shape> shapes, own_memory own, reducer_options options, Hook hook,
          std::source_location where);

  friend pass_type;
  friend detail::pass_base<reducer>;
  using operation = detail::operation_t<Hook, Comm>;
  static constexpr bool averages = !detail::takes_as_is(detail::scaling_of<Hook>);

  task<bool> lay_out_anew(std::source_location where);
  task<> replan_now();
  bool follow(const std::vector<int>& order);
  void lay_out();

  // The calls of the user's pass: pass_ decides, act() carries it out.
  void ready(std::size_t i) { act(pass_.ready(i), i); }
  template <class T>
  void ready(std::size_t i, std::span<const T> from);
  void unused(std::size_t i) { act(pass_.unused(i), i); }
  void rest_unused() {
    for (std::size_t i = 0; i < size(); ++i) act(pass_.leave_out_rest(i), i);
  }
  void skip(step why) {
    pass_.skip(why);
    for (std::size_t i = 0; i < size(); ++i) act(pass_.skip_rest(i), i);
  }
  task<step> finish(pass_type given);
  void drop() noexcept { pass_.reduces() ? give_up(status::pass_dropped) : pass_.drop_accumulating(); }

  void act(detail::pass_action what, std::size_t i) {
    if (what == detail::pass_action::nothing) return;
    if (what == detail::pass_action::zero_and_reduce) leave_out(i);
    if (count_in(i) || buckets_.bounded()) launch_or_give_up();
    world_->engine().poll();
    if (buckets_.bounded()) launch_or_give_up();
  }
  void leave_out(std::size_t i);
  void launch_or_give_up();
  [[noreturn]] void fail();

  // Members with lambdas that are templates are defined here: nvcc 13 refuses them outside of the class.
  void zero(std::size_t i) {
    visit_gradient(pass_.marks().shapes()[i].type,
                   [&]<class T>() { pass_.usage_map().leave_out(i, arena_.gradient<T>(i)); });
  }
  // Returns true if the bucket of gradient i is complete now.
  bool count_in(std::size_t i) {
    const std::size_t b = arena_.bucket_of(i);
    visit_gradient(layout().buckets[b].type, [&]<class T>() {  // now if possible, while caches hold it
      scaled_[i] = weights_.factor_known<T>();
      if (scaled_[i] && !external_.has(i)) multiply(arena_.gradient<T>(i), weights_.prescale<T>());
    });
    const bool all = buckets_.complete(b);
    if (all) times_.ready(b);
    return all;
  }
  // Launches the buckets that may be launched.
  void launch() {
    while (const auto b = buckets_.next()) {
      const std::uint64_t since = times_.before_launch();
      buckets_.launched(*b, visit_gradient(layout().buckets[*b].type, [&]<class T>() { return reduce<T>(*b); }));
      times_.launched(buckets_.group(*b), *b, since);
    }
  }
  template <class T>
  operation reduce(std::size_t b);

  task<> agree_on_step();
  // Takes the step, the request and the usage map of all ranks, and completes the mean.
  request conclude() {
    pass_.finish();
    usage& used = pass_.usage_map();
    const auto& buckets = layout().buckets;
    request heard = request::none;
    if (buckets.empty()) return heard;
    visit_gradient(buckets.back().type, [&]<class T>() {
      const std::span<const T> tail = arena_.tail<T>(buckets.size() - 1);
      constexpr std::size_t line = line_elements<T>;
      pass_.agree(step_flags::take(tail.first(line), weights_.divisor<T>()));
      heard = step_flags::take_request(tail.first(line), weights_.divisor<T>());
      if (used.map_count() != 0) used.take(tail.subspan(line));
    });
    if (pass_.so_far() != step::apply) {
      if constexpr (requires { hook_.forget_pass(); }) hook_.forget_pass();
      return request::none;
    }
    for (std::size_t b = 0; averages && b < buckets.size(); ++b)
      visit_gradient(buckets[b].type, [&]<class T>() {
        for (const std::span<T> sums : arena_.ranges<T>(b))
          // If all weights are 0 the result is 0, even if a hook sends earlier remainders.
          weights_.total() > 0 ? divide(sums, weights_.remaining_divisor<T>()) : multiply(sums, 0);
      });
    used.restore(arena_);
    used.learn(pass_.weight());
    return heard;
  }
  void give_up(std::uint64_t why = 0) noexcept;

  detail::pass_state pass_;
  Comm* world_;
  Hook hook_;
  own_memory own_;
  arena arena_;
  std::vector<char> scaled_;  // gradients of the current pass that have been multiplied
  external_gradients external_;
  weight_sync weights_;
  detail::launcher<Comm, operation> buckets_;
  detail::bucket_times<Comm> times_;
  std::source_location where_;
};

}  // namespace tutti::grad

#include <tutti/impl/grad/reducer.hpp>

#if defined(TUTTI_SEPARATE_COMPILATION)  // compiled by impl/src.hpp, for the default backend
#include <tutti/communicator.hpp>
namespace tutti::grad {
extern template class detail::launcher<communicator<host>, op>;
extern template class reducer<communicator<host>>;
}  // namespace tutti::grad
#endif
