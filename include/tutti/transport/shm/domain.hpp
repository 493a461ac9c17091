#pragma once
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tutti/os/process.hpp>
#include <tutti/transport/shm/attachment.hpp>
#include <tutti/transport/shm/doorbell.hpp>
#include <tutti/transport/shm/heap.hpp>
#include <tutti/transport/shm/registrations.hpp>

namespace tutti {

/// Part of a shared-memory transport besides its messages: shows which ranks of the node live, wakes them, and shares
/// heaps with them. Ranks are local ranks. All calls are made under the engine's lock, except sleep() and wake_self()
/// of the doorbell.
class shm_domain {
 public:
  explicit shm_domain(shm_attachment place)
      : place_(std::move(place)),
        bell_(place_.area(), place_.local_rank(),
              tutti::ranks_per_core(who(rank())) <= 1 ? detail::fences::by_sleeper : detail::fences::by_ringer),
        heap_(place_.segment(), place_.heap(rank()), place_.layout().heap_offset(rank()), place_.layout().heap_bytes),
        registrations_(place_.segment(), heap_, place_.heap(rank()), place_.layout().heap_offset(rank())),
        pid_(::getpid()) {
    auto bells = place_.take_bells();
    if (!bells.empty()) descriptor_ = bells[static_cast<std::size_t>(rank())].native();
    bell_.wake_by(std::move(bells));
  }
  shm_domain(const shm_domain&) = delete;
  shm_domain& operator=(const shm_domain&) = delete;

  [[nodiscard]] int rank() const noexcept { return place_.local_rank(); }
  [[nodiscard]] int size() const noexcept { return place_.local_size(); }
  [[nodiscard]] const rank_info& who(int rank) const noexcept {
    return place_.machine()[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] shm_control_block area() const noexcept { return place_.area(); }
  [[nodiscard]] detail::doorbell& bell() noexcept { return bell_; }
  [[nodiscard]] detail::shm_heap& heap() noexcept { return heap_; }
  [[nodiscard]] const detail::shm_heap& heap() const noexcept { return heap_; }
  [[nodiscard]] shm_registrations& registrations() noexcept { return registrations_; }

  /// Returns the eventfd by which this rank is woken if it sleeps on descriptors; else -1.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  /// Returns the state of another rank; takes some 30 ns for one that is alive.
  [[nodiscard]] os::liveness state_of(int r) noexcept {
    auto& block = area().block(r);
    if (block.left.load(std::memory_order_acquire) != 0) return os::liveness::left;
    return os::probe(block.beacon, who(r).pid, who(r).start_time);
  }
  /// Returns true if a rank accesses no memory any more: it has left, or no thread of its process is alive. The thread
  /// that holds its beacon may die before another that is still at work. Takes some 10 us for a rank that died.
  [[nodiscard]] bool ended(int r) noexcept {
    const os::liveness state = state_of(r);
    return state == os::liveness::left || (state == os::liveness::dead && !os::is_alive(who(r).pid, who(r).start_time));
  }
  /// Calls on_gone(rank, state) for every other rank that is not alive.
  template <class OnGone>
  void check(OnGone on_gone) noexcept {
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      if (const os::liveness state = state_of(r); state != os::liveness::alive) on_gone(r, state);
    }
  }

  /// Records a cause of failure, which stays if it is the first, and wakes all ranks. Ranks in a status are world
  /// ranks.
  void fail(status why) noexcept {
    area().fail(why);
    bell_.ring_all();
  }
  /// Makes all registered memory private; does nothing in a child made by fork().
  void end_registrations() noexcept {
    if (::getpid() == pid_) registrations_.end_all();
  }
  /// Ends all registrations, says goodbye and wakes all ranks; does nothing in a child made by fork().
  void leave() noexcept {
    if (::getpid() != pid_) return;
    end_registrations();
    area().block(rank()).left.store(1, std::memory_order_release);
    bell_.ring_all();
  }

  /// Publishes the sequence number of the operation of the world that this rank begins.
  void note_issue(std::uint64_t sequence) noexcept {
    area().block(rank()).issued.store(sequence, std::memory_order_relaxed);
  }
  /// Returns the rank that has begun the fewest operations of the world, if that is fewer than `sequence`; else -1.
  [[nodiscard]] int furthest_behind(std::uint64_t sequence) const noexcept { return area().furthest_behind(sequence); }

  /// Returns the address here of [where, where + bytes) in a rank's heap; null if that leaves the heap.
  [[nodiscard]] std::byte* resolve(int rank, std::uint64_t where, std::size_t bytes) const noexcept {
    const std::uint64_t all = place_.layout().heap_bytes;
    if (rank < 0 || rank >= size() || where >= all || bytes > all - where) return nullptr;
    return place_.heap(rank) + where;
  }

  [[nodiscard]] std::string describe(int rank) const {
    return tutti::describe(who(rank)) + ", last seen at #" + std::to_string(area().block(rank).issued.load());
  }
  [[nodiscard]] double ranks_per_core() const noexcept { return tutti::ranks_per_core(who(rank())); }

 private:
  shm_attachment place_;
  detail::doorbell bell_;
  detail::shm_heap heap_;
  shm_registrations registrations_;
  ::pid_t pid_;
  int descriptor_ = -1;
};

}  // namespace tutti
