#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <utility>

#include <tutti/async/op_state.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/event.hpp>

namespace tutti::detail {

/// An operation in flight, from its issue to the end of its work on the device, which may come after the end of its
/// handle.
template <class Driver, cuda::runtime_api R>
struct nccl_in_flight_op {
  enum class phase : std::uint8_t {
    queued,     ///< NCCL was not called yet: an earlier launch goes on, or its group is open
    launching,  ///< NCCL is putting it into the stream
    running,    ///< in the stream
    captured    ///< in a graph: never queried on the device, held by its handle only
  };
  static constexpr std::size_t most_bytes =
      (std::max)({sizeof(all_reduce_args), sizeof(reduce_args), sizeof(scatter_args), sizeof(reduce_scatter_v_args),
                  sizeof(all_to_all_args), sizeof(all_reduce_coalesced_args)});

  nccl_in_flight_op* next = nullptr;
  op_state* op = nullptr;  ///< null: the handle ended by join(), only the device's work remains
  phase now = phase::queued;
  std::atomic<bool> launched{false};     ///< running, or has been; read without the lock
  std::uint64_t group = 0;               ///< 0: none
  std::uint64_t graph = 0;               ///< the graph that it is written into; 0: it runs
  cuda::stream_handle stream = nullptr;  ///< the communicator's stream in which it runs
  bool listed = false;                   ///< in the list of operations in flight
  bool held = false;                     ///< captured, and its handle may still join it
  std::uint64_t sequence = 0;
  deadline expires{};
  cuda::basic_event<R> ready, done;  ///< the event that it waits for, and its end
  nccl_result (*enqueue)(Driver&, const void* args) noexcept = nullptr;
  status (*finish)(Driver&, const void* args) noexcept = nullptr;  ///< enqueues the work that follows NCCL's
  alignas(std::max_align_t) std::array<std::byte, most_bytes> args;
};

/// The operations whose end is queried: a query costs 1.5 us if its answer is new.
enum class nccl_queried : std::uint8_t {
  waited_for,  ///< operations whose handle has not ended
  all          ///< also joined ones, for which no handle waits
};

/// The operations in flight in the order of their issue, and a pool of unused ones. Under the engine's lock.
template <class Op>
class nccl_in_flight_list {
 public:
  nccl_in_flight_list() = default;
  nccl_in_flight_list(const nccl_in_flight_list&) = delete;
  nccl_in_flight_list& operator=(const nccl_in_flight_list&) = delete;

  [[nodiscard]] Op* front() const noexcept { return first_; }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

  /// Appends an operation. Throws bad_alloc.
  Op& push() {
    if (!free_) {
      free_ = &all_.emplace_front();
      free_->next = nullptr;
    }
    Op& f = *std::exchange(free_, free_->next);
    f.next = nullptr;
    f.listed = true;
    f.held = false;
    (last_ ? last_->next : first_) = &f;
    last_ = &f;
    return f;
  }
  void pop_front() noexcept {
    Op& f = *first_;
    first_ = f.next;
    if (!first_) last_ = nullptr;
    f.listed = false;
    recycle(f);
  }
  /// Removes `from` and all later ones; f(op) ends each.
  template <class F>
  void cut(Op& from, F f) noexcept {
    Op* before = nullptr;
    for (Op* at = first_; at != &from; at = at->next) before = at;
    (before ? before->next : first_) = nullptr;
    last_ = before;
    for (Op* at = &from; at;) {
      Op& gone = *std::exchange(at, at->next);
      gone.listed = false;
      f(gone);
      recycle(gone);
    }
  }
  /// Releases an operation that its handle held.
  void let_go(Op& f) noexcept {
    f.held = false;
    recycle(f);
  }

 private:
  void recycle(Op& f) noexcept {
    if (f.listed || f.held) return;
    f.next = free_;
    free_ = &f;
  }

  std::forward_list<Op> all_;
  Op *first_ = nullptr, *last_ = nullptr, *free_ = nullptr;
};

/// The operations of one launch: a single one, or those of a group. Others may queue behind it meanwhile.
template <class Op>
class nccl_batch {
 public:
  /// Takes the next launch from the queue. Returns the first operation behind it.
  Op* take(Op& queue) noexcept {
    first_ = last_ = &queue;
    while (queue.group != 0 && last_->next && last_->next->group == queue.group) last_ = last_->next;
    return last_->next;
  }
  [[nodiscard]] Op& front() const noexcept { return *first_; }
  /// Calls f(op) for each operation, which f may end, but not the ones behind it.
  template <class F>
  void each(F f) const noexcept {
    for (Op* at = first_;;) {
      Op* const next = at->next;
      const bool over = at == last_;
      f(*at);
      if (over) return;
      at = next;
    }
  }

 private:
  Op *first_ = nullptr, *last_ = nullptr;
};

}  // namespace tutti::detail
