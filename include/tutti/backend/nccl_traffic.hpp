#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <tutti/async/op_state.hpp>
#include <tutti/backend/nccl_captured.hpp>
#include <tutti/backend/nccl_flight.hpp>
#include <tutti/backend/nccl_streams.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/event_pool.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti::detail {

/// The operations of a communicator from their issue to the end of their work on the device, and their edges to the
/// streams of its user; what NCCL does with them is the driver's. Under the engine's lock.
template <class Driver, cuda::runtime_api R>
class nccl_traffic {
 public:
  using flight = nccl_flight<Driver, R>;
  using phase = typename flight::phase;
  using captured_ops = nccl_captured<R>;

  explicit nccl_traffic(int device, int world_rank) : streams_(device), events_(device), world_rank_(world_rank) {}

  [[nodiscard]] cuda::stream_handle running() const noexcept { return streams_.running(); }
  [[nodiscard]] cuda::stream_handle stream_of(const flight& f) const noexcept { return f.stream; }
  [[nodiscard]] bool empty() const noexcept { return flights_.empty(); }
  [[nodiscard]] flight* front() const noexcept { return flights_.front(); }
  /// None is aloft. Any thread, without the lock.
  [[nodiscard]] bool all_landed() const noexcept { return aloft_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept {
    for (const flight* f = flights_.front(); f; f = f->next)
      if (f->op && f->op->owner == &owner) return true;
    return false;
  }

  // Groups: between the two, operations only queue. One inside another is a part of it, as NCCL's are. The first
  // returns what tells what is issued from then on from what was before.
  std::uint64_t begin_group() noexcept {
    if (depth_.fetch_add(1, std::memory_order_relaxed) == 0) {
      group_ = ++groups_;
      exceptions_ = std::uncaught_exceptions();
      opener_ = std::this_thread::get_id();
    }
    return sequence_;
  }
  void end_group() noexcept {
    if (depth_.fetch_sub(1, std::memory_order_relaxed) == 1) group_ = 0;
  }
  /// Any thread, without the lock: whoever opened it sees it.
  [[nodiscard]] bool in_group() const noexcept { return depth_.load(std::memory_order_relaxed) != 0; }
  /// Its group is still open, and this thread would have to end it. Another may wait for that.
  [[nodiscard]] bool in_group(const op_state& s) const noexcept {
    const auto* const f = static_cast<const flight*>(s.work);
    return f && group_ != 0 && f->now == phase::queued && f->group == group_ && opener_ == std::this_thread::get_id();
  }
  /// What was issued since then in the group that is open, which an exception leaves, never begins.
  void roll_back(std::uint64_t since) noexcept {
    flight* from = queued_;
    while (from && from->sequence <= since) from = from->next;
    if (!from) return;
    if (queued_ == from) queued_ = nullptr;
    flights_.cut(*from, [this](flight& f) {
      events_.release(std::move(f.ready));
      events_.release(std::move(f.done));
      if (op_state* const s = std::exchange(f.op, nullptr)) give_up(*s);
      aloft_.fetch_sub(1, std::memory_order_release);
    });
  }
  /// Its handle is dropped while its group is open: nothing is done in its place.
  void withdraw(op_state& s) noexcept {
    auto& f = *static_cast<flight*>(s.work);
    f.enqueue = [](Driver&, const void*) noexcept { return nccl_result::success; };
    f.finish = nullptr;
    f.op = nullptr;
    if (std::uncaught_exceptions() <= exceptions_) captured_.note_dropped(s, captured_ops::in_group);
    give_up(s);
  }

  /// Throws usage_error where an operation cannot be issued in this stream now: because of a capture into a graph, or
  /// as it is another device's. Throws error or bad_alloc.
  void admit(stream_ref s, const char* collective) {
    captured_.check_dropped();
    target_ = streams_.target_of(s, collective, [this](cuda::stream_handle own) {
      for (const flight* f = queued_; f; f = f->next)
        if (f->stream == own) return f->graph;
      return std::uint64_t{0};
    });
    if (!ready_) ready_ = events_.acquire();
    marked_ = streams_.mark(ready_, s, collective);
    if (group_ != 0) captured_.check_group(group_, target_.graph, collective);
  }
  /// An operation that was admitted comes after what its stream held then, and queues. Throws error or bad_alloc.
  flight& take_on(op_state& s, std::uint64_t sequence, const void* args, std::size_t bytes) {
    cuda::check<R>(marked_, "cudaEventRecord", streams_.device());
    auto done = events_.acquire();
    flight& f = flights_.push();
    aloft_.fetch_add(1, std::memory_order_relaxed);
    f.op = &s;
    f.now = phase::queued;
    f.launched.store(false, std::memory_order_relaxed);
    f.group = group_;
    f.graph = target_.graph;
    was_captured_ = was_captured_ || target_.graph != 0;
    f.stream = target_.stream;
    f.sequence = sequence;
    f.expires = s.info.expires;
    f.ready = std::move(ready_);
    f.done = std::move(done);
    std::memcpy(f.args.data(), args, bytes);
    s.work = &f;
    sequence_ = sequence;
    if (!queued_) queued_ = &f;
    return f;
  }
  /// What take_on() met is not the communicator's failure: CUDA forbids it in this capture. The operation has ended.
  bool excuses(op_state& s, const status& met) noexcept {
    if (!captured_ops::spoilt(target_.graph, met)) return false;
    captured_.complete(s, world_rank_);
    return true;
  }
  [[nodiscard]] bool excused() const noexcept { return captured_.completing(); }

  /// One was, or was to be, written into a graph: NCCL counts those that hold its launches.
  [[nodiscard]] bool was_captured() const noexcept { return was_captured_; }

  /// The first that NCCL was not called for, unless its group is still open.
  [[nodiscard]] flight* due() const noexcept {
    return queued_ && (queued_->group == 0 || queued_->group != group_) ? queued_ : nullptr;
  }
  nccl_batch<flight> next_batch() noexcept {
    nccl_batch<flight> b;
    queued_ = b.take(*queued_);
    return b;
  }
  void forget_queue() noexcept { queued_ = nullptr; }
  /// The n-th of those in the stream that `who` tells, or the last of them; null where there is none.
  [[nodiscard]] flight* running(std::size_t n, nccl_asked who) const noexcept {
    flight* last = nullptr;
    for (flight* f = flights_.front(); f && f->now >= phase::running && n != 0; f = f->next)
      if (f->now == phase::running && (f->op || who == nccl_asked::all)) last = f, --n;
    return last;
  }

  /// Marks the end of a flight in the stream that it was put into; what CUDA said where that is a failure.
  cuda::result put_into(flight& f, cuda::stream_handle s) noexcept {
    const auto r = R::record(f.done.native(), s);
    if (f.graph != 0 && (r == cuda::result::success || cuda::is_of_capture(r))) {
      r == cuda::result::success ? write_down(f) : write_off(f);
      return cuda::result::success;
    }
    if (r != cuda::result::success) return r;
    f.now = phase::running;
    f.launched.store(true, std::memory_order_release);
    return r;
  }
  /// The flight is part of a graph.
  void write_down(flight& f) noexcept {
    f.now = phase::captured;
    op_state* const s = std::exchange(f.op, nullptr);
    f.held = s != nullptr;
    if (s) captured_.complete(*s, world_rank_);
    f.launched.store(true, std::memory_order_release);
  }
  /// Its graph was spoilt: it is part of nothing.
  void write_off(flight& f) noexcept {
    f.done = {};
    write_down(f);
  }

  /// The stream's later work comes after the operation, whose handle ends; there is nothing to do where that has landed
  /// well. False: CUDA forbids it in the capture that the operation is part of. Throws usage_error where it runs, and
  /// the stream is captured, and error.
  bool join(op_state& s, stream_ref to) {
    auto* const flies = static_cast<flight*>(s.work);
    const std::uint64_t graph = flies ? flies->graph : 0;
    if (const char* const why = streams_.why_apart(to, graph)) {
      if (graph != 0) return false;
      throw usage_error(std::string(s.info.collective) + ": " + why);
    }
    if (!flies) return true;
    flight& f = *flies;
    try {
      if (!f.done) return false;
      streams_.on(to, [&](cuda::stream_handle h) { f.done.join(h); });
    } catch (const error& e) {
      if (captured_ops::spoilt(f.graph, e.cause())) return false;
      throw;
    }
    s.work = nullptr;
    if (f.now == phase::captured) {
      let_go(f);
    } else {
      f.op = nullptr;
      s.complete({});
    }
    return true;
  }
  /// The operation was written into a graph and its handle has not ended.
  [[nodiscard]] static bool captured(const op_state& s) noexcept {
    return s.work && static_cast<const flight*>(s.work)->now == phase::captured;
  }
  /// Its handle ends otherwise. Who was `dropped` cannot throw, and leaves that to the next operation.
  void let_go(op_state& s, lost_by how) noexcept {
    if (how == lost_by::drop) captured_.note_dropped(s, captured_ops::in_capture);
    let_go(*static_cast<flight*>(std::exchange(s.work, nullptr)));
  }

  /// The first flight ends. True if it was the last that was aloft.
  bool retire(status how) noexcept {
    flight& f = *flights_.front();
    op_state* const s = f.op;
    events_.release(std::move(f.ready));
    if (!f.held) events_.release(std::move(f.done));
    flights_.pop_front();
    if (s) {
      s->work = nullptr;
      s->complete(how);
    }
    return aloft_.fetch_sub(1, std::memory_order_release) == 1;
  }
  /// The same for all that are older and have landed, by one question to the device: a loop that only joins never
  /// polls.
  void sweep(std::uint64_t sequence) noexcept {
    const flight* last = nullptr;
    for (const flight* f = flights_.front(); f && f->now >= phase::running && f->sequence < sequence; f = f->next)
      if (f->now == phase::running) last = f;
    const cuda::relaxed_capture<R> any_time;
    if (last && R::query_event(last->done.native()) == cuda::result::success) retire_through(*last);
  }
  /// True if the last that was aloft is among them.
  bool retire_through(const flight& last) noexcept {
    while (flights_.front() != &last) retire({});
    return retire({});
  }

 private:
  void give_up(op_state& s) noexcept {
    s.work = nullptr;
    captured_.complete(s, status{errc::aborted, 0, world_rank_, status::group_left});
  }
  void let_go(flight& f) noexcept {
    events_.release(std::move(f.done));
    flights_.let_go(f);
  }

  nccl_streams<R> streams_;
  cuda::basic_event_pool<R> events_;
  int world_rank_;
  std::uint64_t groups_ = 0, group_ = 0;
  std::atomic<std::uint32_t> depth_{0};  // groups that are open
  int exceptions_ = 0;                   // in flight when the first of them was opened
  std::thread::id opener_;               // who did that
  std::uint64_t sequence_ = 0;           // of the last operation
  // Of the operation that was admitted.
  nccl_target target_;
  cuda::basic_event<R> ready_;
  cuda::result marked_ = cuda::result::success;
  nccl_flights<flight> flights_;
  flight* queued_ = nullptr;           // the first that NCCL was not called for
  std::atomic<std::size_t> aloft_{0};  // flights; looked at without the lock
  captured_ops captured_;
  bool was_captured_ = false;
};

}  // namespace tutti::detail
