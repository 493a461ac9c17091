#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/backend/control_lane.hpp>
#include <tutti/backend/nccl_connection.hpp>
#include <tutti/backend/nccl_feature.hpp>
#include <tutti/backend/nccl_place.hpp>
#include <tutti/backend/nccl_suspicion.hpp>
#include <tutti/backend/nccl_traffic.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti::detail {

/// A communicator of NCCL from the meeting of its ranks to its failure, and the operations that end with it: what it is
/// being called for, whether NCCL is at work on it, and the first failure, which is for good. `Driver` derives from it,
/// and drives it. Under the engine's lock, but for what says otherwise.
template <nccl_functions Api, class Driver>
class nccl_session {
 public:
  nccl_session(std::shared_ptr<engine> home, const nccl_place& place, std::unique_ptr<control_lane> control)
      : engine_(std::move(home)),
        control_(std::move(control)),
        place_(place),
        traffic_(place.device, place.world_rank) {}
  nccl_session(const nccl_session&) = delete;
  nccl_session& operator=(const nccl_session&) = delete;

  [[nodiscard]] const nccl_place& place() const noexcept { return place_; }
  [[nodiscard]] engine& home() noexcept { return *engine_; }
  [[nodiscard]] status failure() const noexcept { return failure_; }
  [[nodiscard]] const std::string& words() const noexcept { return words_; }
  [[nodiscard]] const control_lane* control() const noexcept { return control_.get(); }
  [[nodiscard]] nccl_comm comm() const noexcept { return connection_.comm(); }

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
          const cuda::relaxed_capture<runtime> any_time;
          const cuda::basic_device_guard<runtime> device{place_.device};
          called = true;
          connection_.keep(std::move(written));
          connecting_by_ = call;
          const nccl_result r = f(comm());  // success also where it has only begun
          connecting_ = r == nccl_result::success || r == nccl_result::in_progress;
          if (!connecting_) return {};
        }
        if (clock::now() >= until) time_out("");
      }
      engine_->poll();
    }
  }

  /// When a wait is over: fails with what NCCL has met, if it has; else with these words.
  void time_out(const char* words) noexcept { suspected_ ? condemn() : fail({errc::timed_out}, words); }

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
    // frees when it is revoked, and goes on with when it is asked. Nor where graphs may be left, which tell it of their
    // end: its abort waits for them, but not once it was revoked.
    const bool recoverable = connection_ && !connecting_ && !launching_ && !traffic_.was_captured() &&
                             why.code != errc::device && why.code != errc::out_of_resources &&
                             nccl_has<Api>(nccl_feature::revoke, place_.version);
    settled_.store(true, std::memory_order_release);
    stopped_by_ = after(place_.patience);
    connecting_ = launching_ = false;
    traffic_.forget_queue();
    if (control_ && control_->failure().ok()) control_->abort(why);
    connection_.stop(recoverable ? nccl_halt::revoke : nccl_halt::abort, after(place_.patience / 2));
    engine_->notify_locked();
  }

 protected:
  using runtime = typename Api::cuda;
  using traffic = nccl_traffic<Driver, runtime>;
  using phase = typename traffic::phase;

  ~nccl_session() = default;

  void retire(status how) noexcept {
    if (traffic_.retire(how)) engine_->notify_locked();
  }
  /// Ends what the device is done with. Operations end in their order: past the first that has, it asks for one 2, 4, 8
  /// further on.
  bool land(nccl_asked who) noexcept {
    bool moved = false;
    for (std::size_t ahead = 1; failure_.ok(); ahead *= 2) {
      const auto* const f = traffic_.running(ahead, who);
      if (!f) break;
      const cuda::relaxed_capture<runtime> any_time;
      const auto r = runtime::query_event(f->done.native());
      if (r != cuda::result::success && r != cuda::result::not_ready) fail_by(r, "cudaEventQuery");
      if (r != cuda::result::success) break;
      if (traffic_.retire_through(*f)) engine_->notify_locked();
      moved = true;
    }
    for (; failure_.ok() && traffic_.front() && traffic_.front()->now == phase::captured; moved = true) retire({});
    return moved;
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

  /// NCCL tells of a dead peer as an error of some kind, often of its own. The host's world knows better, soon: once
  /// the kernel has closed its connection, which for a process that is killed comes after NCCL's and after the GPU's
  /// memory is given back.
  void blame(nccl_result r, const char* during) noexcept {
    suspected_.raise(r, during, control_ ? after(place_.patience / 5) : (deadline::min)());
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
  nccl_connection<Api> connection_;
  const char* connecting_by_ = "";
  bool connecting_ = false;  // NCCL is at work on what is no launch
  bool launching_ = false;   // or on a launch
  std::atomic<bool> settled_{false};
  nccl_suspicion suspected_;
  status failure_{};
  std::string words_;
  deadline stopped_by_{};

 private:
  template <class Begin>
  void connect(const char* call, Begin begin) noexcept try {
    const cuda::relaxed_capture<runtime> any_time;  // NCCL begins by a call of CUDA's, on this thread
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
};

}  // namespace tutti::detail
