#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/control_lane.hpp>
#include <tutti/backend/nap.hpp>
#include <tutti/backend/nccl_farewell.hpp>
#include <tutti/backend/nccl_flight.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/event_pool.hpp>
#include <tutti/cuda/stream.hpp>

namespace tutti {

/// Which communicator of NCCL a driver is for.
struct nccl_place {
  int device = 0;
  int rank = 0, size = 1;
  int world_rank = 0;                            ///< by which failures name this rank
  int version = 0;                               ///< of NCCL
  duration patience = std::chrono::seconds(10);  ///< how long NCCL and the device may take to stop after a failure
};

/// A communicator of NCCL as its engine drives it: one stream, and the operations that are, or will be, in it.
/// Operations come to NCCL in the order of their issue. Each begins after what its user's stream held when it was
/// issued. NCCL may take its time to put one into the stream (nccl_calls::nonblocking); it is not called meanwhile, and
/// later operations queue here. Nothing here waits for the device or another rank but the destructor, which has limits.
/// All but the destructor is called under the engine's lock.
template <nccl_functions Api>
class nccl_driver final : public progress_source {
  using runtime = typename Api::cuda;
  using flight = detail::nccl_flight<nccl_driver, runtime>;
  using phase = typename flight::phase;

 public:
  /// Throws error{device} or {out_of_resources}.
  nccl_driver(std::shared_ptr<engine> home, const nccl_place& place, std::unique_ptr<control_lane> control)
      : engine_(std::move(home)),
        control_(std::move(control)),
        place_(place),
        stream_(place.device),
        events_(place.device),
        scratch_(place.device, 1) {
    engine_->attach(*this);
  }
  nccl_driver(const nccl_driver&) = delete;
  nccl_driver& operator=(const nccl_driver&) = delete;
  /// Waits for the work that streams were joined to, each until its deadline. Then NCCL has `patience` to end the
  /// communicator; if that is over, its thread and a byte of device memory are left behind.
  ~nccl_driver() {
    engine_->run_until([this] { return aloft_.load(std::memory_order_acquire) == 0; });
    engine_->detach(*this);
    if (comm_) end([comm = comm_, limit = after(place_.patience / 2)] { nccl_farewell<Api>(comm, limit); });
    if (ending_.wait(after(place_.patience)))
      detail::free_bounded(std::move(scratch_), after(place_.patience));
    else
      static_cast<void>(scratch_.release());
  }

  [[nodiscard]] const nccl_place& place() const noexcept { return place_; }
  [[nodiscard]] engine& home() noexcept { return *engine_; }
  [[nodiscard]] status failure() const noexcept { return failure_; }
  [[nodiscard]] const std::string& words() const noexcept { return words_; }
  [[nodiscard]] const control_lane* control() const noexcept { return control_.get(); }
  [[nodiscard]] nccl_comm comm() const noexcept { return comm_; }
  [[nodiscard]] cuda::stream_handle stream() const noexcept { return stream_.native(); }
  [[nodiscard]] std::uint8_t* scratch() const noexcept { return scratch_.span().data(); }

  /// Begins to meet the others; all ranks. connected() once they have.
  void connect(const nccl_unique_id& id, nccl_calls how) noexcept try {
    const cuda::basic_device_guard<runtime> guard{place_.device};
    const nccl_result r = Api::init(comm_, place_.size, id, place_.rank, how);
    connecting_ = r == nccl_result::in_progress;
    if (!connecting_ && r != nccl_result::success) blame(r, "ncclCommInitRankConfig");
    settled_.store(connected(), std::memory_order_release);
  } catch (const error& e) {
    fail(e.cause(), e.what());
  }
  [[nodiscard]] bool connected() const noexcept { return comm_ && !connecting_ && !suspected_; }
  /// connected(), or failed. Any thread, without the lock.
  [[nodiscard]] bool settled() const noexcept { return settled_.load(std::memory_order_acquire); }

  /// Starts an operation that check() of the backend has found possible.
  template <class Args>
  void start(const Args& a, op_state& s, nccl_result (*enqueue)(nccl_driver&, const void*) noexcept) noexcept {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= flight::most_bytes);
    s.info.sequence = ++sequence_;
    if (!failure_.ok()) return s.complete(failure_);
    try {
      auto ready = events_.acquire(), done = events_.acquire();
      on_stream(s.info.stream, [&](cuda::stream_handle h) { ready.record(h); });
      flight& f = flights_.push();
      aloft_.fetch_add(1, std::memory_order_relaxed);
      f.op = &s;
      f.now = phase::queued;
      f.launched.store(false, std::memory_order_relaxed);
      f.group = group_;
      f.sequence = sequence_;
      f.expires = s.info.expires;
      f.ready = std::move(ready);
      f.done = std::move(done);
      f.enqueue = enqueue;
      std::memcpy(f.args.data(), &a, sizeof(Args));
      s.work = &f;
      if (!queued_) queued_ = &f;
    } catch (const error& e) {
      fail(e.cause(), e.what());
      return s.complete(failure_);
    } catch (const std::bad_alloc&) {
      return s.complete({errc::out_of_resources});
    }
    advance();
  }

  /// Between the two, operations only queue; then they are one launch.
  void begin_group() noexcept { group_ = ++groups_; }
  void end_group() noexcept {
    group_ = 0;
    advance();
  }

  /// Ends the handle's part: what is given to the stream from now on comes after the operation. Not under the lock, as
  /// this waits until NCCL has put it into its own stream. Returns the failure if there is one.
  status join(op_state& s, stream_ref to) {
    const flight* const at = flight_of(s);
    if (at) engine_->run_until([&] { return s.done() || at->launched.load(std::memory_order_acquire); });
    const auto guard = engine_->lock();
    if (s.done()) return s.result;
    auto& f = *static_cast<flight*>(s.work);
    try {
      on_stream(to, [&](cuda::stream_handle h) { f.done.join(h); });
    } catch (const error& e) {
      fail(e.cause(), e.what());
      return failure_;
    }
    f.op = nullptr;
    s.work = nullptr;
    s.complete({});
    return {};
  }

  [[nodiscard]] bool busy(const op_owner& owner) const noexcept {
    for (const flight* f = flights_.front(); f; f = f->next)
      if (f->op && f->op->owner == &owner) return true;
    return false;
  }

  /// The first failure ends everything: here once the device has stopped, on the peers by the control lane.
  void fail(status why, const char* words = "") noexcept {
    if (!failure_.ok()) return;
    if (why.peer < 0 && (why.code == errc::device || why.code == errc::out_of_resources)) why.peer = place_.world_rank;
    failure_ = why;
    try {
      words_ = words;
    } catch (...) {  // without words, then
    }
    settled_.store(true, std::memory_order_release);
    stopped_by_ = after(place_.patience);
    connecting_ = launching_ = false;
    queued_ = nullptr;
    if (control_ && control_->failure().ok()) control_->abort(why);
    if (comm_) end([comm = comm_] { static_cast<void>(Api::abort(comm)); });
    engine_->notify_locked();
  }

  bool poll() noexcept override {
    if (!failure_.ok()) return drain();
    bool moved = false;
    if (comm_ && (connecting_ || launching_) && !suspected_) moved = proceed();
    while (flight* f = landed()) {
      retire(*f, {});
      moved = true;
    }
    return (!failure_.ok() && drain()) || moved;
  }

  void tick(deadline now) noexcept override {
    if (!failure_.ok()) return;
    if (control_)
      if (const status lost = control_->failure(); !lost.ok()) return fail(lost);
    if (suspected_) {
      if (now >= judged_at_) condemn();
      return;
    }
    if (comm_ && !connecting_ && !launching_) {
      const nccl_result r = asked();
      if (r != nccl_result::success && r != nccl_result::in_progress) return blame(r, "a running collective");
    }
    for (flight* f = flights_.front(); f; f = f->next) {
      if (now < f->expires) continue;
      if (f->op) f->op->info.expired = true;
      return fail({errc::timed_out, 0, -1, f->sequence});
    }
  }

  // A device tells nobody that it is done: whoever sleeps looks again soon.
  void prepare_park() noexcept override {
    nap_.prepare(flights_.empty() && !connecting_ ? duration::max() : nap::brief);
  }
  void park(duration at_most) noexcept override { nap_.sleep(at_most); }
  void finish_park() noexcept override {}
  void unpark() noexcept override { nap_.wake(); }

 private:
  /// NCCL's end of the communicator, which is not touched from here on.
  template <class F>
  void end(F f) noexcept {
    comm_ = nullptr;
    try {
      ending_.start(f);
    } catch (...) {  // no memory: the communicator is left behind
    }
  }

  template <class F>
  void on_stream(stream_ref s, F f) {
    if (s) return f(s.native());
    const cuda::basic_device_guard<runtime> guard{place_.device};  // the default stream is that of the current device
    f(cuda::default_stream());
  }

  const flight* flight_of(const op_state& s) {
    const auto guard = engine_->lock();
    return static_cast<const flight*>(s.work);
  }

  /// Gives NCCL what is queued, as far as it takes it.
  void advance() noexcept {
    while (failure_.ok() && comm_ && !connecting_ && !launching_ && !suspected_ && queued_ &&
           (queued_->group == 0 || queued_->group != group_))
      launch();
  }

  void launch() noexcept {
    const bool together = queued_->group != 0;
    batch_ = batch_last_ = queued_;
    while (together && batch_last_->next && batch_last_->next->group == batch_->group) batch_last_ = batch_last_->next;
    queued_ = batch_last_->next;
    nccl_result r = nccl_result::success;
    for_batch([&](flight& f) {
      const auto waits = runtime::wait(stream(), f.ready.native());
      if (waits != cuda::result::success) fail_by(waits, "cudaStreamWaitEvent");
    });
    if (!failure_.ok()) return;
    if (together) r = Api::group_start();
    if (r == nccl_result::success) {
      for_batch([&](flight& f) { r = worse(r, f.enqueue(*this, f.args.data())); });
      if (together) r = worse(r, Api::group_end());
    }
    if (r == nccl_result::in_progress) {
      launching_ = true;
      for_batch([](flight& f) { f.now = phase::launching; });
    } else if (r != nccl_result::success) {
      blame(r, batch_->op ? batch_->op->info.collective : "a launch");
    } else {
      in_stream();
    }
  }

  /// What NCCL was called for last; others may have queued behind it since.
  template <class F>
  void for_batch(F f) noexcept {
    f(*batch_);
    for (flight* at = batch_; at != batch_last_;) f(*(at = at->next));
  }

  /// The batch is in the stream.
  void in_stream() noexcept {
    for_batch([this](flight& f) {
      if (const auto r = runtime::record(f.done.native(), stream()); r != cuda::result::success)
        return fail_by(r, "cudaEventRecord");
      f.now = phase::running;
      f.launched.store(true, std::memory_order_release);
    });
  }

  [[nodiscard]] nccl_result asked() const noexcept {
    nccl_result state = nccl_result::success;
    const nccl_result r = Api::async_error(comm_, state);
    return r == nccl_result::success ? state : r;
  }

  /// Asks how far NCCL has come with what it said was in progress.
  bool proceed() noexcept {
    const nccl_result r = asked();
    if (r == nccl_result::in_progress) return false;
    if (r != nccl_result::success) {
      blame(r, connecting_ ? "ncclCommInitRankConfig" : "a launch");
      return false;
    }
    const bool launched = std::exchange(launching_, false);
    connecting_ = false;
    settled_.store(true, std::memory_order_release);
    if (launched) in_stream();
    advance();
    return true;
  }

  /// The first in flight, if the device is done with it.
  flight* landed() noexcept {
    flight* f = flights_.front();
    if (!f || f->now != phase::running || !failure_.ok()) return nullptr;
    const auto r = runtime::query_event(f->done.native());
    if (r != cuda::result::success && r != cuda::result::not_ready) fail_by(r, "cudaEventQuery");
    return r == cuda::result::success ? f : nullptr;
  }

  void retire(flight& f, status how) noexcept {
    op_state* const s = f.op;
    events_.release(std::move(f.ready));
    events_.release(std::move(f.done));
    flights_.pop_front();
    if (s) {
      s->work = nullptr;
      s->complete(how);
    }
    if (aloft_.fetch_sub(1, std::memory_order_release) == 1) engine_->notify_locked();
  }

  /// After a failure: operations end when the device no longer touches their buffers.
  bool drain() noexcept {
    if (flights_.empty()) return false;
    const bool stopped = ending_.ended() && runtime::query_stream(stream()) != cuda::result::not_ready;
    if (!stopped && clock::now() < stopped_by_) return false;
    while (flight* f = flights_.front()) retire(*f, failure_);
    return true;
  }

  static nccl_result worse(nccl_result a, nccl_result b) noexcept {
    const bool a_fine = a == nccl_result::success || a == nccl_result::in_progress;
    if (!a_fine || b == nccl_result::success) return a;
    return b;
  }

  /// NCCL tells of a dead peer as an error of some kind, often of its own. The host's world knows better, soon.
  void blame(nccl_result r, const char* during) noexcept {
    suspected_ = during;
    suspicion_ = r;
    judged_at_ = control_ ? after(place_.patience / 20) : deadline::min();
    if (!control_) condemn();
  }
  void condemn() noexcept try {
    const errc code = suspicion_ == nccl_result::remote    ? errc::peer_lost
                      : suspicion_ == nccl_result::timeout ? errc::timed_out
                                                           : errc::device;
    const char* more = comm_ ? Api::last_error(comm_) : nullptr;
    fail({code, 0, -1, static_cast<std::uint64_t>(suspicion_)},
         (std::string("NCCL met \"") + Api::words(suspicion_) + "\" in " + suspected_ +
          (more && *more ? std::string(": ") + more : std::string()) +
          "; with NCCL_DEBUG=WARN in the environment it tells more")
             .c_str());
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
  cuda::basic_stream<runtime> stream_;
  cuda::basic_event_pool<runtime> events_;
  cuda::basic_device_memory<std::uint8_t, runtime> scratch_;
  nccl_comm comm_ = nullptr;
  bool connecting_ = false;
  bool launching_ = false;
  std::uint64_t sequence_ = 0, groups_ = 0, group_ = 0;
  detail::nccl_flights<flight> flights_;
  flight* queued_ = nullptr;           // the first that NCCL was not called for
  std::atomic<std::size_t> aloft_{0};  // flights; looked at without the lock
  std::atomic<bool> settled_{false};
  flight *batch_ = nullptr, *batch_last_ = nullptr;  // what NCCL was called for last
  const char* suspected_ = nullptr;                  // during what NCCL met an error; null: nothing
  nccl_result suspicion_ = nccl_result::success;
  deadline judged_at_{};
  status failure_{};
  std::string words_;
  deadline stopped_by_{};
  bounded_call ending_;
  nap nap_;
};

}  // namespace tutti
