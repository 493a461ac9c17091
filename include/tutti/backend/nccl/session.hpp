#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/backend/nccl/connection.hpp>
#include <tutti/backend/nccl/feature.hpp>
#include <tutti/backend/nccl/pending_error.hpp>
#include <tutti/backend/nccl/place.hpp>
#include <tutti/backend/nccl/queue.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/backend/world_view.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti::detail {

/// The state of an NCCL communicator from its connection to its failure, and the operations that end with it: the
/// present call of NCCL, whether it is in progress, and the first failure, which is final. `Driver` derives from it,
/// and drives it. Under the engine's lock, unless stated otherwise.
template <nccl_functions Api, class Driver>
class nccl_session {
 public:
  nccl_session(std::shared_ptr<tutti::engine> engine, const nccl_place& place, std::unique_ptr<world_view> control)
      : engine_(std::move(engine)),
        control_(std::move(control)),
        place_(place),
        queue_(place.device, place.world_rank) {}
  nccl_session(const nccl_session&) = delete;
  nccl_session& operator=(const nccl_session&) = delete;

  [[nodiscard]] const nccl_place& place() const noexcept { return place_; }
  [[nodiscard]] tutti::engine& engine() noexcept { return *engine_; }
  [[nodiscard]] status failure() const noexcept { return failure_; }
  [[nodiscard]] const std::string& words() const noexcept { return words_; }
  [[nodiscard]] const world_view* control() const noexcept { return control_.get(); }
  [[nodiscard]] nccl_comm comm() const noexcept { return connection_.comm(); }

  /// Begins to connect to the other ranks; called by all ranks. connected() returns true once they have connected.
  void connect(const nccl_unique_id& id, nccl_calls how) noexcept {
    connect("ncclCommInitRankConfig", [&] { return connection_.begin(place_, id, how); });
  }
  /// Begins to connect by shrinking a revoked communicator, which this one takes over; called by all of its ranks
  /// except the dead.
  void connect(nccl_comm whole, const std::vector<int>& dead, nccl_calls how) noexcept {
    connect("ncclCommShrink", [&] { return connection_.begin_from(whole, dead, how); });
  }
  [[nodiscard]] bool connected() const noexcept { return connection_ && !connecting_ && !pending_error_; }
  /// Returns true if it is connected or has failed. Any thread, without the lock.
  [[nodiscard]] bool settled() const noexcept { return settled_.load(std::memory_order_acquire); }
  /// Returns the communicator that can be shrunk after a failure, which the caller then owns; null if there is none.
  /// Not under the lock.
  [[nodiscard]] nccl_comm recover(deadline limit) noexcept { return connection_.recover(limit); }

  /// Makes a call of NCCL that is no operation: calls f(communicator) while NCCL is at work on nothing else, and waits
  /// for it until `until`. `written` is memory that NCCL may write to until then. Returns the failure if there is one.
  /// Not under the lock.
  template <class F>
  status call_while_idle(const char* call, deadline until, std::shared_ptr<void> written, F f) {
    for (bool called = false;;) {
      {
        const auto guard = engine_->lock();
        if (!failure_.ok()) return failure_;
        if (connected() && !launching_ && !queue_.due()) {
          if (called) return {};
          const cuda::relaxed_capture<runtime> any_time;
          const cuda::basic_device_guard<runtime> device{place_.device};
          called = true;
          connection_.keep(std::move(written));
          connecting_by_ = call;
          const nccl_result r = f(comm());  // success also if it has only begun
          connecting_ = r == nccl_result::success || r == nccl_result::in_progress;
          if (!connecting_) return {};
        }
        if (clock::now() >= until) time_out("");
      }
      engine_->poll();
    }
  }

  /// Fails after a wait has timed out: with NCCL's pending error, if there is one; else with `words`.
  void time_out(const char* words) noexcept { pending_error_ ? fail_pending() : fail({errc::timed_out}, words); }

  /// Records the first failure, which ends everything: here once the device has stopped, on the peers through the
  /// host's world (backend/world_view.hpp).
  void fail(status why, const char* words = "") noexcept {
    if (!failure_.ok()) return;
    if (why.peer < 0 && (why.code == errc::device || why.code == errc::out_of_resources)) why.peer = place_.world_rank;
    failure_ = why;
    try {
      words_ = words;
    } catch (...) {  // then without words
    }
    // Decides whether the communicator may be used again without the lost ranks. Not in a launch: NCCL frees the
    // launch's state when it is revoked, but goes on with it when it is queried. Nor if graphs may be left, which tell
    // the communicator of their end: its abort waits for them, but not after it was revoked.
    const bool recoverable = connection_ && !connecting_ && !launching_ && !queue_.was_captured() &&
                             why.code != errc::device && why.code != errc::out_of_resources &&
                             nccl_has<Api>(nccl_feature::revoke, place_.version);
    settled_.store(true, std::memory_order_release);
    stopped_by_ = after(place_.patience);
    connecting_ = launching_ = false;
    queue_.forget_queue();
    if (control_ && control_->failure().ok()) control_->abort(why);
    connection_.stop(recoverable ? nccl_halt::revoke : nccl_halt::abort, after(place_.patience / 2));
    engine_->notify_locked();
  }

 protected:
  using runtime = typename Api::cuda;
  using queue = nccl_queue<Driver, runtime>;
  using phase = typename queue::phase;

  ~nccl_session() = default;

  void retire(status how) noexcept {
    if (queue_.retire(how)) engine_->notify_locked();
  }
  /// Ends the operations that the device has completed. They end in order: after the first completed one, it queries
  /// those 2, 4, 8, … further on.
  bool complete(nccl_queried who) noexcept {
    bool moved = false;
    for (std::size_t ahead = 1; failure_.ok(); ahead *= 2) {
      const auto* const f = queue_.running(ahead, who);
      if (!f) break;
      const cuda::relaxed_capture<runtime> any_time;
      const auto r = runtime::query_event(f->done.native());
      if (r != cuda::result::success && r != cuda::result::not_ready) fail_by(r, "cudaEventQuery");
      if (r != cuda::result::success) break;
      if (queue_.retire_through(*f)) engine_->notify_locked();
      moved = true;
    }
    for (; failure_.ok() && queue_.front() && queue_.front()->now == phase::captured; moved = true) retire({});
    return moved;
  }
  /// Ends operations after a failure, once the device no longer touches their buffers.
  bool drain() noexcept {
    if (queue_.empty()) return false;
    const cuda::relaxed_capture<runtime> any_time;
    const bool stopped = connection_.stopped() && runtime::query_stream(queue_.running()) != cuda::result::not_ready;
    if (!stopped && clock::now() < stopped_by_) return false;
    while (queue_.front()) retire(failure_);
    return true;
  }

  /// Records an error of NCCL as pending. NCCL reports a dead peer as an error of some kind, often as its own. The
  /// host's world will know the cause once the kernel has closed the peer's connection; for a killed process that comes
  /// after NCCL's error, and after the GPU's memory is freed.
  void record_error(nccl_result r, const char* during) noexcept {
    pending_error_.raise(r, during, control_ ? after(place_.patience / 5) : (deadline::min)());
    if (!control_) fail_pending();
  }
  void fail_pending() noexcept try {
    fail(pending_error_.verdict(), pending_error_.template words<Api>(comm()).c_str());
  } catch (...) {
    fail({errc::out_of_resources});
  }
  void fail_by(cuda::result r, const char* call) noexcept try {
    fail(cuda::status_of(r), cuda::describe<runtime>(r, call, place_.device).c_str());
  } catch (...) {
    fail({errc::out_of_resources});
  }

  std::shared_ptr<tutti::engine> engine_;
  std::unique_ptr<world_view> control_;
  nccl_place place_;
  queue queue_;
  nccl_connection<Api> connection_;
  const char* connecting_by_ = "";
  bool connecting_ = false;  // NCCL is at work on a call that is no launch
  bool launching_ = false;   // NCCL is at work on a launch
  std::atomic<bool> settled_{false};
  nccl_pending_error pending_error_;
  status failure_{};
  std::string words_;
  deadline stopped_by_{};

 private:
  template <class Begin>
  void connect(const char* call, Begin begin) noexcept try {
    const cuda::relaxed_capture<runtime> any_time;  // NCCL first calls CUDA, on this thread
    const cuda::basic_device_guard<runtime> guard{place_.device};
    connecting_by_ = call;
    const nccl_result r = begin();
    connecting_ = r == nccl_result::in_progress;
    if (!connecting_ && r != nccl_result::success) record_error(r, call);
    settled_.store(connected(), std::memory_order_release);
  } catch (const error& e) {
    fail(e.cause(), e.what());
  } catch (...) {
    fail({errc::out_of_resources});
  }
};

}  // namespace tutti::detail
