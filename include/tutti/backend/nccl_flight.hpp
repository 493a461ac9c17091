#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <utility>

#include <tutti/async/op_state.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/event.hpp>

namespace tutti::detail {

/// One operation from its issue to the end of its work on the device, which may come after that of its handle.
template <class Driver, cuda::runtime_api R>
struct nccl_flight {
  enum class phase : std::uint8_t {
    queued,     ///< NCCL has not been called: an earlier launch is not over, or its group is open
    launching,  ///< NCCL is putting it into the stream
    running,    ///< in the stream
    captured    ///< in a graph: the device is never asked for it, only its handle holds it
  };
  static constexpr std::size_t most_bytes =
      (std::max)({sizeof(all_reduce_args), sizeof(reduce_args), sizeof(scatter_args), sizeof(reduce_scatter_v_args),
                  sizeof(all_to_all_args), sizeof(all_reduce_coalesced_args)});

  nccl_flight* next = nullptr;
  op_state* op = nullptr;  ///< null: the handle ended by join(), and only the device is waited for
  phase now = phase::queued;
  std::atomic<bool> launched{false};     ///< running, or has been; looked at without the lock
  std::uint64_t group = 0;               ///< 0: none
  std::uint64_t graph = 0;               ///< into which it is written; 0: it runs
  cuda::stream_handle stream = nullptr;  ///< the communicator's own, into which it goes
  bool listed = false;                   ///< among the flights in the order of their issue
  bool held = false;                     ///< captured, and its handle may still join it
  std::uint64_t sequence = 0;
  deadline expires{};
  cuda::basic_event<R> ready, done;  ///< what it comes after, and its end
  nccl_result (*enqueue)(Driver&, const void* args) noexcept = nullptr;
  status (*finish)(Driver&, const void* args) noexcept = nullptr;  ///< gives the stream what comes after NCCL's part
  alignas(std::max_align_t) std::array<std::byte, most_bytes> args;
};

/// Whose end the device is asked for: a question costs 1.5 us while its answer is new.
enum class nccl_asked : std::uint8_t {
  waited_for,  ///< those whose handle has not ended
  all          ///< and those that were joined, for which nobody waits
};

/// Flights in the order of their issue, and those to be used again. Under the engine's lock.
template <class Flight>
class nccl_flights {
 public:
  nccl_flights() = default;
  nccl_flights(const nccl_flights&) = delete;
  nccl_flights& operator=(const nccl_flights&) = delete;

  [[nodiscard]] Flight* front() const noexcept { return first_; }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

  /// A new last one. Throws bad_alloc.
  Flight& push() {
    if (!free_) {
      free_ = &all_.emplace_front();
      free_->next = nullptr;
    }
    Flight& f = *std::exchange(free_, free_->next);
    f.next = nullptr;
    f.listed = true;
    f.held = false;
    (last_ ? last_->next : first_) = &f;
    last_ = &f;
    return f;
  }
  void pop_front() noexcept {
    Flight& f = *first_;
    first_ = f.next;
    if (!first_) last_ = nullptr;
    f.listed = false;
    recycle(f);
  }
  /// Takes away `from` and all behind it; f(flight) ends each.
  template <class F>
  void cut(Flight& from, F f) noexcept {
    Flight* before = nullptr;
    for (Flight* at = first_; at != &from; at = at->next) before = at;
    (before ? before->next : first_) = nullptr;
    last_ = before;
    for (Flight* at = &from; at;) {
      Flight& gone = *std::exchange(at, at->next);
      gone.listed = false;
      f(gone);
      recycle(gone);
    }
  }
  /// Its handle has let go of it.
  void let_go(Flight& f) noexcept {
    f.held = false;
    recycle(f);
  }

 private:
  void recycle(Flight& f) noexcept {
    if (f.listed || f.held) return;
    f.next = free_;
    free_ = &f;
  }

  std::forward_list<Flight> all_;
  Flight *first_ = nullptr, *last_ = nullptr, *free_ = nullptr;
};

/// What NCCL is called for at once: a flight, or those of a group. Others may queue behind it meanwhile.
template <class Flight>
class nccl_batch {
 public:
  /// From `queue` on; returns what is next.
  Flight* take(Flight& queue) noexcept {
    first_ = last_ = &queue;
    while (queue.group != 0 && last_->next && last_->next->group == queue.group) last_ = last_->next;
    return last_->next;
  }
  [[nodiscard]] Flight& front() const noexcept { return *first_; }
  /// f(flight) may end the flight, but not what is behind it.
  template <class F>
  void each(F f) const noexcept {
    for (Flight* at = first_;;) {
      Flight* const next = at->next;
      const bool over = at == last_;
      f(*at);
      if (over) return;
      at = next;
    }
  }

 private:
  Flight *first_ = nullptr, *last_ = nullptr;
};

}  // namespace tutti::detail
