#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  [[nodiscard]] cuda::stream_handle stream_of(const flight& f) const noexcept {
    return f.graph != 0 ? streams_.captured() : streams_.running();
  }
  [[nodiscard]] bool empty() const noexcept { return flights_.empty(); }
  [[nodiscard]] flight* front() const noexcept { return flights_.front(); }
  /// None is aloft. Any thread, without the lock.
  [[nodiscard]] bool all_landed() const noexcept { return aloft_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept {
    for (const flight* f = flights_.front(); f; f = f->next)
      if (f->op && f->op->owner == &owner) return true;
    return false;
  }

  // Groups: between the two, operations only queue. One inside another is a part of it, as NCCL's are.
  void begin_group() noexcept {
    if (depth_++ == 0) group_ = ++groups_;
  }
  void end_group() noexcept {
    if (--depth_ == 0) group_ = 0;
  }

  /// Throws usage_error where an operation cannot be issued in this stream now, because of a capture into a graph.
  void admit(stream_ref s, const char* collective) {
    captured_.check_dropped();
    graph_ = streams_.graph_of(s, collective);
    if (group_ != 0) captured_.check_group(group_, graph_, collective);
  }
  /// An operation that was admitted comes after what its stream holds, and queues. Throws error or bad_alloc.
  flight& take_on(op_state& s, std::uint64_t sequence, const void* args, std::size_t bytes) {
    auto ready = events_.acquire(), done = events_.acquire();
    streams_.on(s.info.stream, [&](cuda::stream_handle h) { ready.record(h); });
    flight& f = flights_.push();
    aloft_.fetch_add(1, std::memory_order_relaxed);
    f.op = &s;
    f.now = phase::queued;
    f.launched.store(false, std::memory_order_relaxed);
    f.group = group_;
    f.graph = graph_;
    f.sequence = sequence;
    f.expires = s.info.expires;
    f.ready = std::move(ready);
    f.done = std::move(done);
    std::memcpy(f.args.data(), args, bytes);
    s.work = &f;
    if (!queued_) queued_ = &f;
    return f;
  }
  /// What take_on() met is not the communicator's failure: CUDA forbids it in this capture. The operation has ended.
  bool excuses(op_state& s, const status& met) noexcept {
    if (!captured_ops::spoilt(graph_, met)) return false;
    captured_.complete(s, world_rank_);
    return true;
  }
  [[nodiscard]] bool excused() const noexcept { return captured_.completing(); }

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

  /// Marks the end of a flight in the stream that it was put into; what CUDA said where that is a failure.
  cuda::result put_into(flight& f, cuda::stream_handle s) noexcept {
    const auto r = R::record(f.done.native(), s);
    if (f.graph != 0 && (r == cuda::result::success || cuda::is_of_capture(r))) {
      write_down(f, r == cuda::result::success);
      return cuda::result::success;
    }
    if (r != cuda::result::success) return r;
    f.now = phase::running;
    f.launched.store(true, std::memory_order_release);
    return r;
  }
  /// The flight is part of a graph, or, where that was spoilt, of nothing.
  void write_down(flight& f, bool well) noexcept {
    if (!well) f.done = {};
    f.now = phase::captured;
    op_state* const s = std::exchange(f.op, nullptr);
    f.held = s != nullptr;
    if (s) captured_.complete(*s, world_rank_);
    f.launched.store(true, std::memory_order_release);
  }

  /// The stream's later work comes after the operation, whose handle ends. False: CUDA forbids it in this capture.
  /// Throws error.
  bool join(op_state& s, stream_ref to) {
    auto& f = *static_cast<flight*>(s.work);
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
    if (how == lost_by::drop) captured_.note_dropped(s);
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
    if (!last || R::query_event(last->done.native()) != cuda::result::success) return;
    for (bool over = false; !over;) {
      over = flights_.front() == last;
      retire({});
    }
  }

 private:
  void let_go(flight& f) noexcept {
    events_.release(std::move(f.done));
    flights_.let_go(f);
  }

  nccl_streams<R> streams_;
  cuda::basic_event_pool<R> events_;
  int world_rank_;
  std::uint64_t groups_ = 0, group_ = 0;
  std::uint32_t depth_ = 0;  // groups that are open
  std::uint64_t graph_ = 0;  // of the operation that was admitted
  nccl_flights<flight> flights_;
  flight* queued_ = nullptr;           // the first that NCCL was not called for
  std::atomic<std::size_t> aloft_{0};  // flights; looked at without the lock
  captured_ops captured_;
};

}  // namespace tutti::detail
