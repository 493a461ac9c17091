#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/interruptible_sleep.hpp>
#include <tutti/backend/nccl/place.hpp>
#include <tutti/backend/nccl/queue.hpp>
#include <tutti/backend/nccl/session.hpp>
#include <tutti/backend/nccl/shutdown.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/backend/world_view.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti {

/// The progress source of an NCCL communicator: its stream, and the operations that are in it or will be. Operations
/// are given to NCCL in the order of their issue. Each begins after the work that its user's stream held when it was
/// issued. NCCL may put an operation into the stream later (nccl_calls::nonblocking); it is not called meanwhile, and
/// later operations queue here. Nothing here waits for the device or another rank except the destructor, which has
/// limits. An operation whose stream is being captured is written into the graph; only its handle's join() remains. All
/// except the destructor is called under the engine's lock, unless stated otherwise.
template <nccl_functions Api>
class nccl_driver final : public progress_source, public detail::nccl_session<Api, nccl_driver<Api>> {
  using base = detail::nccl_session<Api, nccl_driver>;
  using base::connecting_, base::connecting_by_, base::failure_, base::launching_, base::settled_, base::pending_error_;
  using base::connection_, base::control_, base::engine_, base::place_, base::queue_;
  using base::drain, base::fail_by, base::record_error, base::fail_pending, base::complete;
  using typename base::runtime, typename base::queue;
  using in_flight_op = typename queue::in_flight_op;
  using typename base::phase;

 public:
  using base::connected, base::fail;

  /// Gives an operation, with its arguments at `args`, to NCCL; finish_fn gives its stream the work that follows
  /// NCCL's.
  using enqueue_fn = nccl_result (*)(nccl_driver&, const void* args) noexcept;
  using finish_fn = status (*)(nccl_driver&, const void* args) noexcept;

  /// Attaches to the engine. Throws error{device} or {out_of_resources}.
  nccl_driver(std::shared_ptr<tutti::engine> engine, const nccl_place& place, std::unique_ptr<world_view> control)
      : base(std::move(engine), place, std::move(control)),
        recorder_(place.rank, place.size),
        scratch_(place.device, 1) {
    engine_->attach(*this);
  }
  nccl_driver(const nccl_driver&) = delete;
  nccl_driver& operator=(const nccl_driver&) = delete;
  /// Waits for the work that streams were joined to, each until its deadline, if it has one. Then NCCL has `patience`
  /// to end the communicator; after that, its thread and a byte of device memory are leaked.
  ~nccl_driver() {
    engine_->run_unchecked([this] { return queue_.all_complete(); });
    engine_->detach(*this);
    if (connection_.bye(place_.patience))
      detail::free_bounded(std::move(scratch_), after(place_.patience));
    else
      static_cast<void>(scratch_.release());
  }

  /// Returns the recorder of this communicator's operations, whose world is not that of the host's.
  [[nodiscard]] watch::flight_recorder& recorder() noexcept { return recorder_; }
  /// Returns the stream of the present call of NCCL.
  [[nodiscard]] cuda::stream_handle stream() const noexcept { return target_; }
  [[nodiscard]] std::uint8_t* scratch() const noexcept { return scratch_.span().data(); }

  /// Throws usage_error if an operation cannot be issued in this stream now, because of a capture into a graph, or
  /// because it belongs to another device; invalidates no capture. Called before start(), under the same lock.
  void admit(stream_ref s, const char* collective) try {
    if (failure_.ok()) queue_.admit(s, collective);
  } catch (const error& e) {
    fail(e.cause(), e.what());
  }
  /// Starts an operation that the backend's check() has accepted. `finish` may be null.
  template <class Args>
  void start(const Args& a, op_state& s, enqueue_fn enqueue, finish_fn finish) noexcept {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= in_flight_op::most_bytes);
    s.info.sequence = ++sequence_;
    s.work = nullptr;
    if (!failure_.ok()) return s.complete(failure_);
    if (sequence_ % 64 == 0) queue_.sweep(sequence_ - 32);
    try {
      in_flight_op& f = queue_.take_on(s, sequence_, &a, sizeof(Args));
      f.enqueue = enqueue;
      f.finish = finish;
    } catch (const error& e) {
      if (queue_.excuses(s, e.cause())) return;
      fail(e.cause(), e.what());
      return s.complete(failure_);
    } catch (const std::bad_alloc&) {
      return s.complete({errc::out_of_resources});
    }
    advance();
  }

  /// Begins a group. Until end_group(), operations only queue; then they are one launch.
  std::uint64_t begin_group() noexcept { return queue_.begin_group(); }
  void end_group() noexcept {
    queue_.end_group();
    advance();
  }

  /// Ends the handle by a join: later work of the stream runs after the operation. Not under the lock, as this waits
  /// until NCCL has put the operation into its own stream. Returns the failure if there is one. Throws usage_error, and
  /// the operation goes on, if the stream is being captured and the operation cannot precede the captured work.
  status join(op_state& s, stream_ref to) {
    const auto [at, polls] = in_flight_op_of(s);
    if (polls) engine_->poll();
    if (at) engine_->run_until([&] { return s.done() || at->launched.load(std::memory_order_acquire); });
    const auto guard = engine_->lock();
    const bool written = queue::captured(s);
    if (s.done() && !written && !s.result.ok()) return s.result;
    if (!failure_.ok() && (!s.done() || written)) {  // the device may still be working, with undefined results
      if (written) {
        queue_.let_go(s, detail::unjoined_end::wait);
        s.result = failure_;
      }
      return failure_;
    }
    try {
      return queue_.join(s, to) ? status{} : s.result;
    } catch (const error& e) {
      fail(e.cause(), e.what());
      return failure_;
    }
  }
  /// Returns true if the operation was written into a graph and its handle has not ended: only join() ends it well. Not
  /// under the lock.
  [[nodiscard]] bool captured(const op_state& s) {
    const auto guard = engine_->lock();
    return queue::captured(s);
  }
  /// Ends the handle of such an operation in another way. Not under the lock.
  void let_go(op_state& s, detail::unjoined_end how) noexcept {
    const auto guard = engine_->lock();
    if (queue::captured(s)) queue_.let_go(s, how);
  }
  /// Returns true while an operation is completed whose failure is not that of the communicator.
  [[nodiscard]] bool excused() const noexcept { return queue_.excused(); }
  [[nodiscard]] queue& operations() noexcept { return queue_; }
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept { return queue_.busy(owner); }

  bool poll() noexcept override {
    if (!failure_.ok()) return drain();
    bool moved = false;
    if (connection_ && (connecting_ || launching_) && !pending_error_) moved = proceed();
    if (queue_.empty()) return moved;
    moved = complete(detail::nccl_queried::waited_for) || moved;
    return (!failure_.ok() && drain()) || moved;
  }

  void tick(deadline now) noexcept override {
    recorder_.tick(now);
    if (!failure_.ok()) return;
    if (control_)
      if (const status lost = control_->failure(); !lost.ok()) return fail(lost);
    if (pending_error_) {
      if (pending_error_.due(now)) fail_pending();
      return;
    }
    if (connection_ && !connecting_ && !launching_) {
      const nccl_result r = connection_.supported();
      if (r != nccl_result::success && r != nccl_result::in_progress) return record_error(r, "a running collective");
    }
    if (complete(detail::nccl_queried::all); !failure_.ok()) return;
    for (in_flight_op* f = queue_.front(); f; f = f->next) {
      if (now < f->expires || f->now == phase::captured) continue;
      if (f->op) f->op->info.expired = true;
      return fail({errc::timed_out, 0, -1, f->sequence});
    }
  }

  // A device does not signal its end, so a sleeping thread polls again soon.
  void prepare_park() noexcept override {
    sleep_.prepare(queue_.empty() && !connecting_ ? (duration::max)() : interruptible_sleep::brief);
  }
  void park(duration at_most) noexcept override { sleep_.sleep(at_most); }
  void finish_park() noexcept override {}
  void unpark() noexcept override { sleep_.wake(); }

 private:
  /// Returns the operation in flight of a handle, and whether its join must poll: a loop that only joins notices a lost
  /// peer in no other way.
  std::pair<const in_flight_op*, bool> in_flight_op_of(const op_state& s) {
    const auto guard = engine_->lock();
    const auto* const f = static_cast<const in_flight_op*>(s.work);
    return {f, f && f->graph == 0 && ++joins_ % 8 == 0};
  }

  /// Gives queued operations to NCCL, as long as NCCL can take them.
  void advance() noexcept {
    while (failure_.ok() && connected() && !launching_ && queue_.due()) launch();
  }

  void launch() noexcept {
    batch_ = queue_.next_batch();
    in_flight_op& first = batch_.front();
    target_ = queue_.stream_of(first);
    auto waits = cuda::result::success;
    batch_.each([&](in_flight_op& f) {
      if (waits == cuda::result::success) waits = runtime::wait(target_, f.ready.native());
    });
    if (first.graph != 0 && cuda::is_of_capture(waits))
      return batch_.each([this](in_flight_op& f) { queue_.write_off(f); });
    if (waits != cuda::result::success) return fail_by(waits, "cudaStreamWaitEvent");
    const nccl_result r = place_.size == 1 ? call_alone() : call();
    if (!failure_.ok()) return;
    if (r == nccl_result::in_progress) {
      launching_ = true;
      batch_.each([](in_flight_op& f) { f.now = phase::launching; });
    } else if (r != nccl_result::success) {
      launching_ = true;  // for good
      record_error(r, first.op ? first.op->info.collective : "a launch");
    } else {
      in_stream();
    }
  }

  nccl_result call() noexcept {
    const bool together = batch_.front().group != 0;
    const cuda::relaxed_capture<runtime> any_time;  // NCCL queries events of graphs that it knows
    nccl_result r = together ? Api::group_start() : nccl_result::success;
    if (r != nccl_result::success) return r;
    batch_.each([&](in_flight_op& f) { r = worse(r, f.enqueue(*this, f.args.data())); });
    return together ? worse(r, Api::group_end()) : r;
  }
  // For one rank, NCCL launches its kernel at once, on the device that is current.
  nccl_result call_alone() noexcept try {
    const cuda::basic_device_guard<runtime> guard{place_.device};
    return call();
  } catch (const error& e) {
    fail(e.cause(), e.what());
    return nccl_result::success;
  }

  /// Records that the batch is in its stream.
  void in_stream() noexcept {
    batch_.each([this](in_flight_op& f) {
      if (!failure_.ok()) return;
      if (f.finish)
        if (const status s = end_in_stream(f); !s.ok())
          return fail(s, "the kernel that divides a sum by the number of ranks could not be launched");
      const auto r = queue_.put_into(f, target_);
      if (r != cuda::result::success) return fail_by(r, "cudaEventRecord");
    });
  }

  status end_in_stream(in_flight_op& f) noexcept try {
    const cuda::basic_device_guard<runtime> guard{place_.device};  // kernels run on the current device
    return f.finish(*this, f.args.data());
  } catch (const error& e) {
    return e.cause();
  }

  /// Asks NCCL for the state of the call that was in progress.
  bool proceed() noexcept {
    const nccl_result r = connection_.supported();
    if (r == nccl_result::in_progress) return false;
    if (r != nccl_result::success) {
      record_error(r, connecting_ ? connecting_by_ : "a launch");
      return false;
    }
    const bool launched = std::exchange(launching_, false);
    connecting_ = false;
    settled_.store(true, std::memory_order_release);
    if (launched) in_stream();
    advance();
    return true;
  }

  static nccl_result worse(nccl_result a, nccl_result b) noexcept {
    const bool a_fine = a == nccl_result::success || a == nccl_result::in_progress;
    if (!a_fine || b == nccl_result::success) return a;
    return b;
  }

  watch::flight_recorder recorder_;
  cuda::basic_device_memory<std::uint8_t, runtime> scratch_;
  std::uint64_t sequence_ = 0, joins_ = 0;
  detail::nccl_batch<in_flight_op> batch_;  // the operations of the last call of NCCL
  cuda::stream_handle target_ = nullptr;    // its stream
  interruptible_sleep sleep_;
};

}  // namespace tutti
