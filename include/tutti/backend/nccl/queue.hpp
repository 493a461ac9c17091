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
#include <tutti/backend/nccl/captured.hpp>
#include <tutti/backend/nccl/in_flight_op.hpp>
#include <tutti/backend/nccl/streams.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/event_pool.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti::detail {

/// The operations of a communicator from their issue to the end of their work on the device, and their dependencies on
/// the user's streams; the driver makes the calls of NCCL. Under the engine's lock.
template <class Driver, cuda::runtime_api R>
class nccl_queue {
 public:
  using in_flight_op = nccl_in_flight_op<Driver, R>;
  using phase = typename in_flight_op::phase;
  using captured_ops = nccl_captured<R>;

  explicit nccl_queue(int device, int world_rank) : streams_(device), events_(device), world_rank_(world_rank) {}

  [[nodiscard]] cuda::stream_handle running() const noexcept { return streams_.running(); }
  [[nodiscard]] cuda::stream_handle stream_of(const in_flight_op& f) const noexcept { return f.stream; }
  [[nodiscard]] bool empty() const noexcept { return in_flight_.empty(); }
  [[nodiscard]] in_flight_op* front() const noexcept { return in_flight_.front(); }
  /// Returns true if no operation is in flight. Any thread, without the lock.
  [[nodiscard]] bool all_complete() const noexcept { return unfinished_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept {
    for (const in_flight_op* f = in_flight_.front(); f; f = f->next)
      if (f->op && f->op->owner == &owner) return true;
    return false;
  }

  // Begins a group: until end_group(), operations only queue. A nested group is a part of the outer one, as in NCCL.
  // Returns the number of the last operation that was issued before it.
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
  /// Returns true if a group is open. Any thread, without the lock: the thread that opened it sees it.
  [[nodiscard]] bool in_group() const noexcept { return depth_.load(std::memory_order_relaxed) != 0; }
  /// Returns true if the operation's group is still open and was opened by this thread, which would have to end it.
  /// Another thread may wait for that.
  [[nodiscard]] bool in_group(const op_state& s) const noexcept {
    const auto* const f = static_cast<const in_flight_op*>(s.work);
    return f && group_ != 0 && f->now == phase::queued && f->group == group_ && opener_ == std::this_thread::get_id();
  }
  /// Cancels the operations issued after number `since` in the open group, which an exception leaves.
  void roll_back(std::uint64_t since) noexcept {
    in_flight_op* from = queued_;
    while (from && from->sequence <= since) from = from->next;
    if (!from) return;
    if (queued_ == from) queued_ = nullptr;
    in_flight_.cut(*from, [this](in_flight_op& f) {
      events_.release(std::move(f.ready));
      events_.release(std::move(f.done));
      if (op_state* const s = std::exchange(f.op, nullptr)) give_up(*s);
      unfinished_.fetch_sub(1, std::memory_order_release);
    });
  }
  /// Cancels an operation whose handle is dropped while its group is open.
  void withdraw(op_state& s) noexcept {
    auto& f = *static_cast<in_flight_op*>(s.work);
    f.enqueue = [](Driver&, const void*) noexcept { return nccl_result::success; };
    f.finish = nullptr;
    f.op = nullptr;
    if (std::uncaught_exceptions() <= exceptions_) captured_.note_dropped(s, captured_ops::in_group);
    give_up(s);
  }

  /// Throws usage_error if an operation cannot be issued in this stream now: because of a capture into a graph, or
  /// because it belongs to another device. Throws error or bad_alloc.
  void admit(stream_ref s, const char* collective) {
    captured_.check_dropped();
    target_ = streams_.target_of(s, collective, [this](cuda::stream_handle own) {
      for (const in_flight_op* f = queued_; f; f = f->next)
        if (f->stream == own) return f->graph;
      return std::uint64_t{0};
    });
    if (!ready_) ready_ = events_.acquire();
    marked_ = streams_.mark(ready_, s, collective);
    if (group_ != 0) captured_.check_group(group_, target_.graph, collective);
  }
  /// Queues an operation that was admitted; it runs after the work that its stream held then. Throws error or
  /// bad_alloc.
  in_flight_op& take_on(op_state& s, std::uint64_t sequence, const void* args, std::size_t bytes) {
    cuda::check<R>(marked_, "cudaEventRecord", streams_.device());
    auto done = events_.acquire();
    in_flight_op& f = in_flight_.push();
    unfinished_.fetch_add(1, std::memory_order_relaxed);
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
  /// Returns true, and ends the operation, if the error of take_on() is not the communicator's failure: CUDA forbids
  /// the operation in this capture.
  bool excuses(op_state& s, const status& met) noexcept {
    if (!captured_ops::spoilt(target_.graph, met)) return false;
    captured_.complete(s, world_rank_);
    return true;
  }
  [[nodiscard]] bool excused() const noexcept { return captured_.completing(); }

  /// Returns true if an operation was, or was to be, written into a graph: NCCL counts the graphs that hold its
  /// launches.
  [[nodiscard]] bool was_captured() const noexcept { return was_captured_; }

  /// Returns the first operation that NCCL was not called for, unless its group is still open.
  [[nodiscard]] in_flight_op* due() const noexcept {
    return queued_ && (queued_->group == 0 || queued_->group != group_) ? queued_ : nullptr;
  }
  nccl_batch<in_flight_op> next_batch() noexcept {
    nccl_batch<in_flight_op> b;
    queued_ = b.take(*queued_);
    return b;
  }
  void forget_queue() noexcept { queued_ = nullptr; }
  /// Returns the n-th running operation of those that `who` selects, or the last of them; null if there is none.
  [[nodiscard]] in_flight_op* running(std::size_t n, nccl_queried who) const noexcept {
    in_flight_op* last = nullptr;
    for (in_flight_op* f = in_flight_.front(); f && f->now >= phase::running && n != 0; f = f->next)
      if (f->now == phase::running && (f->op || who == nccl_queried::all)) last = f, --n;
    return last;
  }

  /// Records the end of an operation in the stream that it was put into. Returns CUDA's error if that fails.
  cuda::result put_into(in_flight_op& f, cuda::stream_handle s) noexcept {
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
  /// Marks an operation as part of a graph.
  void write_down(in_flight_op& f) noexcept {
    f.now = phase::captured;
    op_state* const s = std::exchange(f.op, nullptr);
    f.held = s != nullptr;
    if (s) captured_.complete(*s, world_rank_);
    f.launched.store(true, std::memory_order_release);
  }
  /// Marks an operation whose capture was invalidated: it is part of nothing.
  void write_off(in_flight_op& f) noexcept {
    f.done = {};
    write_down(f);
  }

  /// Makes the stream's later work wait for the operation, and ends its handle; does nothing more if the operation has
  /// completed. Returns false if CUDA forbids it in the capture that the operation is part of. Throws usage_error if
  /// the operation runs and the stream is captured, and error.
  bool join(op_state& s, stream_ref to) {
    auto* const running_op = static_cast<in_flight_op*>(s.work);
    const std::uint64_t graph = running_op ? running_op->graph : 0;
    if (const char* const why = streams_.why_not_after(to, graph)) {
      if (graph != 0) return false;
      throw usage_error(std::string(s.info.collective) + ": " + why);
    }
    if (!running_op) return true;
    in_flight_op& f = *running_op;
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
  /// Returns true if the operation was written into a graph and its handle has not ended.
  [[nodiscard]] static bool captured(const op_state& s) noexcept {
    return s.work && static_cast<const in_flight_op*>(s.work)->now == phase::captured;
  }
  /// Ends the handle of such an operation in another way. A destructor (`drop`) cannot throw, so the next operation
  /// throws its usage_error.
  void let_go(op_state& s, unjoined_end how) noexcept {
    if (how == unjoined_end::drop) captured_.note_dropped(s, captured_ops::in_capture);
    let_go(*static_cast<in_flight_op*>(std::exchange(s.work, nullptr)));
  }

  /// Ends the first operation. Returns true if it was the last in flight.
  bool retire(status how) noexcept {
    in_flight_op& f = *in_flight_.front();
    op_state* const s = f.op;
    events_.release(std::move(f.ready));
    if (!f.held) events_.release(std::move(f.done));
    in_flight_.pop_front();
    if (s) {
      s->work = nullptr;
      s->complete(how);
    }
    return unfinished_.fetch_sub(1, std::memory_order_release) == 1;
  }
  /// Ends all operations before `sequence` if the last of them has completed, by one query of the device: for a loop
  /// that only joins, which never polls.
  void sweep(std::uint64_t sequence) noexcept {
    const in_flight_op* last = nullptr;
    for (const in_flight_op* f = in_flight_.front(); f && f->now >= phase::running && f->sequence < sequence;
         f = f->next)
      if (f->now == phase::running) last = f;
    const cuda::relaxed_capture<R> any_time;
    if (last && R::query_event(last->done.native()) == cuda::result::success) retire_through(*last);
  }
  /// Ends the operations up to `last`. Returns true if the last in flight is among them.
  bool retire_through(const in_flight_op& last) noexcept {
    while (in_flight_.front() != &last) retire({});
    return retire({});
  }

 private:
  void give_up(op_state& s) noexcept {
    s.work = nullptr;
    captured_.complete(s, status{errc::aborted, 0, world_rank_, status::group_left});
  }
  void let_go(in_flight_op& f) noexcept {
    events_.release(std::move(f.done));
    in_flight_.let_go(f);
  }

  nccl_streams<R> streams_;
  cuda::basic_event_pool<R> events_;
  int world_rank_;
  std::uint64_t groups_ = 0, group_ = 0;
  std::atomic<std::uint32_t> depth_{0};  // groups that are open
  int exceptions_ = 0;                   // in flight when the first of them was opened
  std::thread::id opener_;               // the thread that opened it
  std::uint64_t sequence_ = 0;           // number of the last operation
  // State of the operation that was admitted.
  nccl_target target_;
  cuda::basic_event<R> ready_;
  cuda::result marked_ = cuda::result::success;
  nccl_in_flight_list<in_flight_op> in_flight_;
  in_flight_op* queued_ = nullptr;          // the first operation that NCCL was not called for
  std::atomic<std::size_t> unfinished_{0};  // operations in flight; read without the lock
  captured_ops captured_;
  bool was_captured_ = false;
};

}  // namespace tutti::detail
