#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/control_lane.hpp>
#include <tutti/backend/nap.hpp>
#include <tutti/backend/nccl_connection.hpp>
#include <tutti/backend/nccl_place.hpp>
#include <tutti/backend/nccl_suspicion.hpp>
#include <tutti/backend/nccl_traffic.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti {

/// A communicator of NCCL as its engine drives it: one stream, and the operations that are, or will be, in it.
/// Operations come to NCCL in the order of their issue. Each begins after what its user's stream held when it was
/// issued. NCCL may take its time to put one into the stream (nccl_calls::nonblocking); it is not called meanwhile, and
/// later operations queue here. Nothing here waits for the device or another rank but the destructor, which has limits.
/// An operation whose stream is being captured is written into the graph, and forgotten but for the handle's join().
/// All but the destructor is called under the engine's lock.
template <nccl_functions Api>
class nccl_driver final : public progress_source {
  using runtime = typename Api::cuda;
  using traffic = detail::nccl_traffic<nccl_driver, runtime>;
  using flight = typename traffic::flight;
  using phase = typename flight::phase;

 public:
  /// Gives NCCL, or the stream after NCCL, an operation whose arguments are at `args`.
  using enqueue_fn = nccl_result (*)(nccl_driver&, const void* args) noexcept;
  using finish_fn = status (*)(nccl_driver&, const void* args) noexcept;

  /// Throws error{device} or {out_of_resources}.
  nccl_driver(std::shared_ptr<engine> home, const nccl_place& place, std::unique_ptr<control_lane> control)
      : engine_(std::move(home)),
        control_(std::move(control)),
        place_(place),
        traffic_(place.device, place.world_rank),
        scratch_(place.device, 1) {
    engine_->attach(*this);
  }
  nccl_driver(const nccl_driver&) = delete;
  nccl_driver& operator=(const nccl_driver&) = delete;
  /// Waits for the work that streams were joined to, each until its deadline. Then NCCL has `patience` to end the
  /// communicator; if that is over, its thread and a byte of device memory are left behind.
  ~nccl_driver() {
    engine_->run_until([this] { return traffic_.all_landed(); });
    engine_->detach(*this);
    if (connection_.bye(place_.patience))
      detail::free_bounded(std::move(scratch_), after(place_.patience));
    else
      static_cast<void>(scratch_.release());
  }

  [[nodiscard]] const nccl_place& place() const noexcept { return place_; }
  [[nodiscard]] engine& home() noexcept { return *engine_; }
  [[nodiscard]] status failure() const noexcept { return failure_; }
  [[nodiscard]] const std::string& words() const noexcept { return words_; }
  [[nodiscard]] const control_lane* control() const noexcept { return control_.get(); }
  [[nodiscard]] nccl_comm comm() const noexcept { return connection_.comm(); }
  /// Of what NCCL is being called for.
  [[nodiscard]] cuda::stream_handle stream() const noexcept { return target_; }
  [[nodiscard]] std::uint8_t* scratch() const noexcept { return scratch_.span().data(); }

  /// Begins to meet the others; all ranks. connected() once they have.
  void connect(const nccl_unique_id& id, nccl_calls how) noexcept {
    connect("ncclCommInitRankConfig", [&] { return connection_.begin(place_, id, how); });
  }
  /// The same out of a communicator that was revoked, which becomes this one's; all of its ranks but the dead.
  void connect(nccl_comm whole, const std::vector<int>& dead, nccl_calls how) noexcept {
    connect("ncclCommShrink", [&] { return connection_.begin_from(whole, dead, how); });
  }
  [[nodiscard]] bool connected() const noexcept { return connection_ && !connecting_ && !suspected_; }
  /// connected(), or failed. Any thread, without the lock.
  [[nodiscard]] bool settled() const noexcept { return settled_.load(std::memory_order_acquire); }
  /// After a failure: what can be shrunk of NCCL's communicator, now the caller's; null: nothing. Not under the lock.
  [[nodiscard]] nccl_comm recover(deadline limit) noexcept { return connection_.recover(limit); }

  /// A call of NCCL's that is no operation: f(communicator) is made while NCCL is at work on nothing else, and waited
  /// for until `until`. `written` is what NCCL may write to until then. Returns the failure if there is one. Not under
  /// the lock.
  template <class F>
  status at_rest(const char* call, deadline until, std::shared_ptr<void> written, F f) {
    for (bool called = false;;) {
      {
        const auto guard = engine_->lock();
        if (!failure_.ok()) return failure_;
        if (connected() && !launching_ && !traffic_.due()) {
          if (called) return {};
          const cuda::basic_device_guard<runtime> device{place_.device};
          called = true;
          connection_.keep(std::move(written));
          connecting_by_ = call;
          const nccl_result r = f(comm());  // success also where it has only begun
          connecting_ = r == nccl_result::success || r == nccl_result::in_progress;
          if (!connecting_) return {};
        }
        if (clock::now() >= until) fail({errc::timed_out});
      }
      engine_->poll();
    }
  }

  /// Before start(), under the same lock: throws usage_error where an operation cannot be issued in this stream now,
  /// because of a capture into a graph; spoils none.
  void admit(stream_ref s, const char* collective) {
    if (failure_.ok()) traffic_.admit(s, collective);
  }
  /// Starts an operation that check() of the backend has found possible. `finish` may be null.
  template <class Args>
  void start(const Args& a, op_state& s, enqueue_fn enqueue, finish_fn finish) noexcept {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= flight::most_bytes);
    s.info.sequence = ++sequence_;
    s.work = nullptr;
    if (!failure_.ok()) return s.complete(failure_);
    if (sequence_ % 64 == 0) traffic_.sweep(sequence_ - 32);
    try {
      flight& f = traffic_.take_on(s, sequence_, &a, sizeof(Args));
      f.enqueue = enqueue;
      f.finish = finish;
    } catch (const error& e) {
      if (traffic_.excuses(s, e.cause())) return;
      fail(e.cause(), e.what());
      return s.complete(failure_);
    } catch (const std::bad_alloc&) {
      return s.complete({errc::out_of_resources});
    }
    advance();
  }

  /// Between the two, operations only queue; then they are one launch.
  void begin_group() noexcept { traffic_.begin_group(); }
  void end_group() noexcept {
    traffic_.end_group();
    advance();
  }

  /// Ends the handle's part: what is given to the stream from now on comes after the operation. Not under the lock, as
  /// this waits until NCCL has put it into its own stream. Returns the failure if there is one.
  status join(op_state& s, stream_ref to) {
    const auto [at, polls] = flight_of(s);
    if (polls) engine_->poll();
    if (at) engine_->run_until([&] { return s.done() || at->launched.load(std::memory_order_acquire); });
    const auto guard = engine_->lock();
    if (s.done() && !traffic::captured(s)) return s.result;
    try {
      return traffic_.join(s, to) ? status{} : s.result;
    } catch (const error& e) {
      fail(e.cause(), e.what());
      return failure_;
    }
  }
  /// The operation was written into a graph and its handle has not ended: only join() ends it well. Not under the lock.
  [[nodiscard]] bool captured(const op_state& s) {
    const auto guard = engine_->lock();
    return traffic::captured(s);
  }
  /// Ends the handle of such an operation otherwise. Not under the lock.
  void let_go(op_state& s, detail::lost_by how) noexcept {
    const auto guard = engine_->lock();
    if (traffic::captured(s)) traffic_.let_go(s, how);
  }
  /// An operation is being ended whose failure is not that of the communicator.
  [[nodiscard]] bool excused() const noexcept { return traffic_.excused(); }

  [[nodiscard]] bool busy(const op_owner& owner) const noexcept { return traffic_.busy(owner); }

  /// The first failure ends everything: here once the device has stopped, on the peers by the control lane.
  void fail(status why, const char* words = "") noexcept {
    if (!failure_.ok()) return;
    if (why.peer < 0 && (why.code == errc::device || why.code == errc::out_of_resources)) why.peer = place_.world_rank;
    failure_ = why;
    try {
      words_ = words;
    } catch (...) {  // without words, then
    }
    // Without the ranks that are gone, a communicator may be of use still. Not in a launch: what NCCL has of that it
    // frees when it is revoked, and goes on with when it is asked.
    const bool recoverable = connection_ && !connecting_ && !launching_ && why.code != errc::device &&
                             why.code != errc::out_of_resources && nccl_has<Api>(nccl_feature::revoke, place_.version);
    settled_.store(true, std::memory_order_release);
    stopped_by_ = after(place_.patience);
    connecting_ = launching_ = false;
    traffic_.forget_queue();
    if (control_ && control_->failure().ok()) control_->abort(why);
    connection_.stop(recoverable ? nccl_halt::revoke : nccl_halt::abort, after(place_.patience / 2));
    engine_->notify_locked();
  }

  bool poll() noexcept override {
    if (!failure_.ok()) return drain();
    bool moved = false;
    if (connection_ && (connecting_ || launching_) && !suspected_) moved = proceed();
    if (traffic_.empty()) return moved;
    const cuda::relaxed_capture<runtime> any_time;
    while (landed()) {
      retire({});
      moved = true;
    }
    return (!failure_.ok() && drain()) || moved;
  }

  void tick(deadline now) noexcept override {
    if (!failure_.ok()) return;
    if (control_)
      if (const status lost = control_->failure(); !lost.ok()) return fail(lost);
    if (suspected_) {
      if (suspected_.ripe(now)) condemn();
      return;
    }
    if (connection_ && !connecting_ && !launching_) {
      const nccl_result r = connection_.asked();
      if (r != nccl_result::success && r != nccl_result::in_progress) return blame(r, "a running collective");
    }
    for (flight* f = traffic_.front(); f; f = f->next) {
      if (now < f->expires || f->now == phase::captured) continue;
      if (f->op) f->op->info.expired = true;
      return fail({errc::timed_out, 0, -1, f->sequence});
    }
  }

  // A device tells nobody that it is done: whoever sleeps looks again soon.
  void prepare_park() noexcept override {
    nap_.prepare(traffic_.empty() && !connecting_ ? duration::max() : nap::brief);
  }
  void park(duration at_most) noexcept override { nap_.sleep(at_most); }
  void finish_park() noexcept override {}
  void unpark() noexcept override { nap_.wake(); }

 private:
  template <class Begin>
  void connect(const char* call, Begin begin) noexcept try {
    const cuda::basic_device_guard<runtime> guard{place_.device};
    connecting_by_ = call;
    const nccl_result r = begin();
    connecting_ = r == nccl_result::in_progress;
    if (!connecting_ && r != nccl_result::success) blame(r, call);
    settled_.store(connected(), std::memory_order_release);
  } catch (const error& e) {
    fail(e.cause(), e.what());
  } catch (...) {
    fail({errc::out_of_resources});
  }

  /// And whether its join is to poll: whoever only joins hears of a lost peer in no other way.
  std::pair<const flight*, bool> flight_of(const op_state& s) {
    const auto guard = engine_->lock();
    const auto* const f = static_cast<const flight*>(s.work);
    return {f, f && f->graph == 0 && ++joins_ % 8 == 0};
  }

  /// Gives NCCL what is queued, as far as it takes it.
  void advance() noexcept {
    while (failure_.ok() && connected() && !launching_ && traffic_.due()) launch();
  }

  void launch() noexcept {
    batch_ = traffic_.next_batch();
    flight& first = batch_.front();
    const bool together = first.group != 0;
    target_ = traffic_.stream_of(first);
    auto waits = cuda::result::success;
    batch_.each([&](flight& f) {
      if (waits == cuda::result::success) waits = runtime::wait(target_, f.ready.native());
    });
    if (first.graph != 0 && cuda::is_of_capture(waits))
      return batch_.each([this](flight& f) { traffic_.write_down(f, false); });
    if (waits != cuda::result::success) return fail_by(waits, "cudaStreamWaitEvent");
    nccl_result r = together ? Api::group_start() : nccl_result::success;
    if (r == nccl_result::success) {
      batch_.each([&](flight& f) { r = worse(r, f.enqueue(*this, f.args.data())); });
      if (together) r = worse(r, Api::group_end());
    }
    if (r == nccl_result::in_progress) {
      launching_ = true;
      batch_.each([](flight& f) { f.now = phase::launching; });
    } else if (r != nccl_result::success) {
      launching_ = true;  // for good
      blame(r, first.op ? first.op->info.collective : "a launch");
    } else {
      in_stream();
    }
  }

  /// The batch is in its stream.
  void in_stream() noexcept {
    batch_.each([this](flight& f) {
      if (!failure_.ok()) return;
      if (f.finish)
        if (const status s = end_in_stream(f); !s.ok())
          return fail(s, "the kernel that divides a sum by the number of ranks could not be launched");
      const auto r = traffic_.put_into(f, target_);
      if (r != cuda::result::success) return fail_by(r, "cudaEventRecord");
    });
  }

  status end_in_stream(flight& f) noexcept try {
    const cuda::basic_device_guard<runtime> guard{place_.device};  // a kernel is one of the current device
    return f.finish(*this, f.args.data());
  } catch (const error& e) {
    return e.cause();
  }

  /// Asks how far NCCL has come with what it said was in progress.
  bool proceed() noexcept {
    const nccl_result r = connection_.asked();
    if (r == nccl_result::in_progress) return false;
    if (r != nccl_result::success) {
      blame(r, connecting_ ? connecting_by_ : "a launch");
      return false;
    }
    const bool launched = std::exchange(launching_, false);
    connecting_ = false;
    settled_.store(true, std::memory_order_release);
    if (launched) in_stream();
    advance();
    return true;
  }

  /// The device is done with the first in flight, or will never be asked for it.
  bool landed() noexcept {
    const flight* const f = traffic_.front();
    if (!f || !failure_.ok() || f->now < phase::running) return false;
    if (f->now == phase::captured) return true;
    const auto r = runtime::query_event(f->done.native());
    if (r != cuda::result::success && r != cuda::result::not_ready) fail_by(r, "cudaEventQuery");
    return r == cuda::result::success;
  }

  void retire(status how) noexcept {
    if (traffic_.retire(how)) engine_->notify_locked();
  }

  /// After a failure: operations end when the device no longer touches their buffers.
  bool drain() noexcept {
    if (traffic_.empty()) return false;
    const cuda::relaxed_capture<runtime> any_time;
    const bool stopped = connection_.stopped() && runtime::query_stream(traffic_.running()) != cuda::result::not_ready;
    if (!stopped && clock::now() < stopped_by_) return false;
    while (traffic_.front()) retire(failure_);
    return true;
  }

  static nccl_result worse(nccl_result a, nccl_result b) noexcept {
    const bool a_fine = a == nccl_result::success || a == nccl_result::in_progress;
    if (!a_fine || b == nccl_result::success) return a;
    return b;
  }

  /// NCCL tells of a dead peer as an error of some kind, often of its own. The host's world knows better, soon.
  void blame(nccl_result r, const char* during) noexcept {
    suspected_.raise(r, during, control_ ? after(place_.patience / 20) : deadline::min());
    if (!control_) condemn();
  }
  void condemn() noexcept try {
    fail(suspected_.verdict(), suspected_.template words<Api>(comm()).c_str());
  } catch (...) {
    fail({errc::out_of_resources});
  }
  void fail_by(cuda::result r, const char* call) noexcept try {
    fail(cuda::status_of(r), cuda::describe<runtime>(r, call, place_.device).c_str());
  } catch (...) {
    fail({errc::out_of_resources});
  }

  std::shared_ptr<engine> engine_;
  std::unique_ptr<control_lane> control_;
  nccl_place place_;
  traffic traffic_;
  cuda::basic_device_memory<std::uint8_t, runtime> scratch_;
  detail::nccl_connection<Api> connection_;
  const char* connecting_by_ = "";
  bool connecting_ = false;
  bool launching_ = false;
  std::uint64_t sequence_ = 0, joins_ = 0;
  std::atomic<bool> settled_{false};
  detail::nccl_batch<flight> batch_;      // what NCCL was called for last
  cuda::stream_handle target_ = nullptr;  // its stream
  detail::nccl_suspicion suspected_;
  status failure_{};
  std::string words_;
  deadline stopped_by_{};
  nap nap_;
};

}  // namespace tutti
