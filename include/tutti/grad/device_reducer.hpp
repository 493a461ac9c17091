#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/device/arena.hpp>
#include <tutti/grad/device/buckets.hpp>
#include <tutti/grad/device/hook.hpp>
#include <tutti/grad/device/host_report.hpp>
#include <tutti/grad/device/pass.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/pass/pass_state.hpp>
#include <tutti/grad/pass/weight_sync.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

/// The reducer of gradients in the memory of GPUs, with the same shapes, options, weights and marks as `reducer`.
/// Buckets are sent in `devices`; weights, skips and the usage map in `world`, from which `devices` was made. No step
/// waits for a device or copies from one. Each rank's gradients are multiplied by its share of the weight as NCCL reads
/// them; see device_sum_hook for the rounding. A state that only the device knows, such as that it met a NaN, goes into
/// found_inf() and stays there. Collective; one pass at a time; one thread at a time; both communicators must outlive
/// it.
///
/// The constructor and each new plan register memory with NCCL and wait for that, as basic_nccl_memory: without a limit
/// under nccl_calls::blocking. The destructor waits for the device, at most nccl_options::patience.
/// `launch_order::ready` and `in_flight` are usage errors, since NCCL runs operations one after the other; `predivide`
/// has no effect. Errors: as reducer. Costs one all_reduce per bucket, one of a float in the last one's launch, and two
/// of some bytes among the hosts. Memory: the gradients once, and the hook's scratch.
template <class Comm, class Host, class Hook = device_sum_hook<>>
  requires(Comm::backend_type::where == space::cuda && Host::backend_type::where == space::host) &&
          device_hook<Hook, Comm>
class device_reducer {
 public:
  using pass_type = device_pass<device_reducer>;
  using completion_type = completion<device_reducer>;

  device_reducer(Comm& devices, Host& world, std::span<const parameter_shape> shapes, reducer_options options = {},
                 Hook hook = {}, std::source_location where = std::source_location::current())
      : pass_(shapes, std::move(options), world.rank()),
        gpus_(&devices),
        world_(&detail::countable(world)),
        arena_(detail::make_agreed(
            world, "reducer", shapes,
            [&] {
              check_worlds();
              return make_arena(pass_.plan_for(pass_.options().ready_order));
            },
            [&](const arena_type& a) { return a.layout().id() ^ pass_.options().id(); }, where)),
        weights_(scaling::divided, pass_.options().predivide, world.size()),
        buckets_(devices, std::move(hook), arena_, weights_, pass_) {
    arena_.enroll(devices);
    make_room();
  }
  device_reducer(const device_reducer&) = delete;
  device_reducer& operator=(const device_reducer&) = delete;
  ~device_reducer() {
    if (pass_.active()) drop();
  }

  [[nodiscard]] Hook& hook() noexcept { return buckets_.hook(); }
  /// Return the same as those of reducer.
  [[nodiscard]] std::size_t size() const noexcept { return pass_.size(); }
  [[nodiscard]] const plan& layout() const noexcept { return arena_.layout(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.bytes(); }
  [[nodiscard]] double total_weight() const noexcept { return weights_.total(); }
  [[nodiscard]] bool used(std::size_t parameter) const { return pass_.used(parameter); }
  [[nodiscard]] std::span<const int> ready_order() const noexcept { return pass_.marks().ready_order(); }
  [[nodiscard]] std::uint64_t replans() const noexcept { return pass_.replans(); }
  /// Returns the gradient of one parameter: written in the backward pass, and the mean when the pass is complete. Zero
  /// at first.
  template <number T>
  [[nodiscard]] cuda::device_span<T> gradient(std::size_t parameter) const {
    return arena_.template gradient<T>(parameter);
  }
  /// Returns all gradients, if they have one type.
  template <number T = float>
  [[nodiscard]] std::vector<cuda::device_span<T>> gradients() const {
    std::vector<cuda::device_span<T>> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back(arena_.template gradient<T>(i));
    return all;
  }
  /// Returns one float on the device: 0 when a pass begins. A kernel that meets an infinity or NaN sets it to 1, in the
  /// stream of begin() and before the last mark. When the pass is complete it is not 0, on all ranks, if any rank set
  /// it or skipped. Later kernels test it to leave the parameters unchanged; the host never reads it. Passes that
  /// accumulate keep it. Infinities and NaNs in gradients reach all ranks as such without it, too.
  [[nodiscard]] cuda::device_span<float> found_inf() const noexcept { return arena_.flag(); }

  /// Begins a pass, as reducer::begin. Marks that name no stream refer to `stream`, which must run after all work that
  /// still reads the gradients of the last pass.
  [[nodiscard]] pass_type begin(double weight = 1, stream_ref stream = {}, contribution what = contribution::mean,
                                std::source_location where = std::source_location::current()) {
    refuse_capture(stream, "begin");
    const bool fresh = !pass_.has_accumulated();
    pass_.begin(weight);
    where_ = where;
    marking_ = stream;
    buckets_.begin(stream, where);
    pass_type begun{*this};
    if (fresh) arena_.clear_flag(stream);
    weights_.begin(*world_, pass_.weight(), what, partial_sums::rounded, where);
    for (std::size_t i = 0; pass_.usage_map().learned() && i < size(); ++i) act(pass_.leave_out_never_used(i), i);
    return begun;
  }
  /// Begins a pass that sends nothing, as reducer::begin(accumulate).
  [[nodiscard]] pass_type begin(accumulate_t, double weight = 1, stream_ref stream = {}) {
    refuse_capture(stream, "begin");
    const bool fresh = !pass_.has_accumulated();
    pass_.begin_accumulating(weight);
    pass_type begun{*this};
    if (fresh) arena_.clear_flag(stream);
    return begun;
  }

  /// Discards the state of passes that accumulated, as reducer::discard; gradients become zero in the stream.
  void discard(stream_ref stream) {
    pass_.require_idle("discard()");
    refuse_capture(stream, "discard");
    pass_.forget_accumulated();
    arena_.clear(stream);
  }

  /// Lays the buckets out anew, as reducer::rebuild; gradients keep the values that they have after the work of
  /// `stream`. Waits for the device. Other work on the gradients must be done.
  [[nodiscard]] task<bool> rebuild(stream_ref stream, std::source_location where = std::source_location::current()) {
    pass_.require_idle("rebuild()");
    refuse_capture(stream, "rebuild");
    return lay_out_anew(stream, where);
  }

 private:
  friend pass_type;
  friend completion_type;
  friend detail::pass_base<device_reducer>;
  using buckets = detail::device_buckets<Comm, Hook>;
  using arena_type = typename buckets::arena_type;

  void refuse_capture(stream_ref stream, const char* call) {
    try {
      arena_.refuse_capture(stream, call);
    } catch (const error&) {  // the device has failed, and the other ranks would wait
      gpus_->abort();
      throw;
    }
  }
  /// Throws usage_error for a mark while its stream is captured, before anything changes.
  void refuse_captured_mark(const char* call) {
    if (pass_.reduces()) refuse_capture(marking_, call);
  }
  void check_worlds() const {
    if (gpus_->size() != world_->size() || gpus_->rank() != world_->rank())
      throw usage_error(
          "device_reducer: the GPUs' world has other ranks than the host's; give it the world from which "
          "gpu_world() made that");
    if (pass_.options().order == launch_order::ready)
      throw usage_error(
          "device_reducer: NCCL runs operations in one order, the same on all ranks; use "
          "launch_order::planned");
    if (pass_.options().in_flight != 0)
      throw usage_error("device_reducer: NCCL runs buckets one after the other anyway; leave in_flight 0");
  }
  [[nodiscard]] arena_type make_arena(plan p) {
    const auto scratch = buckets::scratch_of(p);
    return arena_type(*gpus_, pass_.marks().shapes(), std::move(p), scratch);
  }
  void make_room() {
    pass_.arrange(layout());
    weights_.arrange(layout(), pass_.options().order);
    buckets_.arrange(layout());
    report_.reserve(size());
  }

  task<bool> lay_out_anew(stream_ref stream, std::source_location where) {
    pass_.require_idle("rebuild()");  // also when it is awaited
    refuse_capture(stream, "rebuild");
    pass_type at_work{*this};  // dropped or failed, it ends the world: plans might differ
    pass_.begin_rebuild();
    std::vector<int> order = pass_.marks().order();
    co_await detail::agree_on_order(*world_, *world_, order, where);  // a pass begins on world_, too
    const bool changed = co_await follow(order, stream, where);
    pass_.end();
    co_return changed;
  }
  task<> replan_now(stream_ref stream) {
    std::vector<int> order = pass_.marks().order();
    co_await world_->broadcast(std::span{order}, 0, {}, where_);
    co_await follow(order, stream, where_);
  }
  /// Moves the gradients after the work of the stream, for which it waits unless a rank is lost meanwhile.
  task<bool> follow(const std::vector<int>& order, stream_ref stream, std::source_location where) {
    plan better = pass_.plan_for(order);
    if (better == layout()) co_return false;
    arena_type moved = make_arena(std::move(better));
    moved.follow(stream);
    moved.copy_from(arena_);
    for (const deadline limit = after(gpus_->timeout()); !moved.filled(limit);) {
      if (failed()) co_await gpus_->barrier({}, where);  // throws the failure with its usual message
      co_await resume_on(gpus_->engine());
    }
    moved.enroll(*gpus_);  // when nothing is in flight
    arena_ = std::move(moved);
    make_room();
    co_return true;
  }
  [[nodiscard]] bool failed() {
    const auto guard = gpus_->engine().lock();
    return !gpus_->backend().failure().ok();
  }

  // The calls of the user's pass: pass_ decides, act() carries it out.
  void ready(std::size_t i) {
    refuse_captured_mark("ready");
    act(pass_.ready(i), i);
  }
  void ready(std::size_t i, stream_ref after) {
    const back_to usual{marking_, marking_};
    marking_ = after;
    ready(i);
  }
  void unused(std::size_t i) {
    refuse_captured_mark("unused");
    act(pass_.unused(i), i);
  }
  void rest_unused() {
    refuse_captured_mark("rest_unused");
    for (std::size_t i = 0; i < size(); ++i) act(pass_.leave_out_rest(i), i);
  }
  void skip(step why) {
    refuse_captured_mark("skip");
    pass_.skip(why);
    for (std::size_t i = 0; i < size(); ++i) act(pass_.skip_rest(i), i);
  }
  void drop() noexcept { pass_.reduces() ? give_up(status::pass_dropped) : pass_.drop_accumulating(); }
  struct back_to {
    ~back_to() { now = before; }
    stream_ref& now;
    stream_ref before;
  };

  void act(detail::pass_action what, std::size_t i) {
    if (what == detail::pass_action::nothing) return;
    try {
      if (what == detail::pass_action::zero_and_reduce) zero(i);
      count_in(i);
      buckets_.launch();
    } catch (...) {
      give_up();
      explain();
    }
    gpus_->engine().poll();
  }
  void zero(std::size_t i) {
    arena_.follow(marking_);
    pass_.options().unused == unused_parameters::tracked ? arena_.keep(i) : arena_.zero(i);
  }
  void count_in(std::size_t i) { buckets_.complete(arena_.bucket_of(i), marking_); }
  completion_type finish(pass_type given) {
    if (!pass_.reduces()) {
      const step so_far = pass_.finish_accumulating();
      return completion_type{std::move(given), so_far};
    }
    try {
      for (std::size_t i = 0; i < size(); ++i)
        if (pass_.mark_delayed(i)) count_in(i);
      pass_.require_all_marked();
      weights_.template await_weights<double>();
      buckets_.launch_rest();
      report_.send(*world_, pass_.so_far(), pass_.wants(), pass_.usage_map(), pass_.weight(), where_);
    } catch (...) {
      explain();
    }
    return completion_type{std::move(given)};
  }
  /// Throws the exception that is being handled, or in its place the failure of this rank's device, which a collective
  /// of the hosts does not know.
  [[noreturn]] void explain() const {
    try {
      detail::throw_different_calls(detail::pass_of(pass_.weight()));
    } catch (const error& e) {
      if (e.kind() != errc::device || e.cause().peer != gpus_->backend().world_rank()) throw;
      const auto guard = gpus_->engine().lock();
      throw error(e.cause(), gpus_->backend().words(e.cause()), {e.rank(), e.sequence(), e.collective(), e.where()});
    }
  }

  // Takes the result of the hosts' all_reduce.
  void learn() {
    pass_.finish();
    pass_.agree(report_.learn(pass_.usage_map()));
  }
  step end() {
    if (pass_.so_far() == step::apply) pass_.usage_map().learn(pass_.weight());
    pass_.end();
    return pass_.so_far();
  }
  /// Restores gradients that no rank used, after bucket b.
  auto restore() {
    return [this](std::size_t b, stream_ref s) {
      for (const bucket_slot& slot : layout().buckets[b].slots)
        if (const auto i = static_cast<std::size_t>(slot.parameter); !pass_.usage_map().used_anywhere(i))
          arena_.restore(i, s);
    };
  }

  step join(completion_type given, stream_ref s) {
    const completion_type mine = std::move(given);  // gives up if this throws
    try {
      report_.take().wait();
      learn();
      buckets_.join(s, pass_.so_far(), restore());
      if (report_.requested() == request::replan) sync_wait(*gpus_, replan_now(s));
    } catch (...) {
      explain();
    }
    return end();
  }
  task<step> wait_async(completion_type given) {
    const completion_type mine = std::move(given);
    try {
      op said = report_.take();
      co_await std::move(said);
      learn();
      co_await buckets_.wait_all(pass_.so_far(), restore());
      if (report_.requested() == request::replan) co_await replan_now(arena_.stream());
    } catch (...) {
      explain();
    }
    co_return end();
  }
  step wait(completion_type given) { return sync_wait(*gpus_, wait_async(std::move(given))); }

  void give_up(std::uint64_t why = 0) noexcept {
    gpus_->abort(why);
    buckets_.drop();
    report_.forget();
    weights_.forget();
    pass_.end();
  }

  detail::pass_state pass_;
  Comm* gpus_;
  Host* world_;
  arena_type arena_;
  weight_sync weights_;
  buckets buckets_;
  detail::host_report report_;
  stream_ref marking_;  // the stream of the current mark
  std::source_location where_;
};

}  // namespace tutti::grad
