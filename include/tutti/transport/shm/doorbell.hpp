#pragma once
#include <atomic>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/asymmetric_fence.hpp>
#include <tutti/os/event_fd.hpp>
#include <tutti/transport/shm/control_block.hpp>

namespace tutti::detail {

/// Choice of who pays for the fence between a store and the check whether the peer sleeps.
enum class fences {
  by_ringer,  ///< some 10 ns and the time until the store is visible, for each ring: for ranks that sleep often
  by_sleeper  ///< some 20 us before each sleep: for ranks with a core of their own; by_ringer if the kernel cannot
};

/// Doorbell of one rank in a shared area: sleeps until it is woken, and wakes the other ranks. A rank that has stored
/// something that a peer may wait for calls ring(peer) afterwards. That costs a load while the peer is awake, and a
/// fence unless the peer makes it. sleep() and wake_self() need no lock; the other calls are made under the engine's.
class doorbell {
 public:
  doorbell(shm_control_block area, int rank, fences how = fences::by_ringer) noexcept
      : area_(area), rank_(rank), reachable_(how == fences::by_sleeper && os::accept_heavy_fences()) {
    mine().fences.store(reachable_ ? 1 : 0, std::memory_order_relaxed);
  }

  /// Wakes a peer if it sleeps.
  void ring(int peer) noexcept {
    auto& b = area_.block(peer);
    // The caller's stores must come before the load of `sleeping`; prepare() orders the opposite way.
    if (reachable_ && b.fences.load(std::memory_order_relaxed) != 0)
      os::light_fence();
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
    switch (b.sleeping.load(std::memory_order_relaxed)) {
      case shm_control_block::sleep::awake:
        return;
      case shm_control_block::sleep::on_futex:
        b.bell.fetch_add(1, std::memory_order_release);
        os::futex_wake(b.bell);
        return;
      case shm_control_block::sleep::on_descriptor:
        if (static_cast<std::size_t>(peer) < descriptors_.size()) descriptors_[static_cast<std::size_t>(peer)].notify();
        return;
    }
  }
  /// Wakes every other rank that sleeps.
  void ring_all() noexcept {
    for (int r = 0; r < area_.ranks(); ++r)
      if (r != rank_) ring(r);
  }

  /// Sets the eventfds by which ranks that sleep on descriptors are woken, by rank.
  void wake_by(std::vector<os::event_fd> descriptors) noexcept { descriptors_ = std::move(descriptors); }

  /// Declares that this rank is about to sleep. The caller looks once more for what it waits for before it calls
  /// sleep(), and calls finish() afterwards.
  void prepare(shm_control_block::sleep how) noexcept {
    seen_ = mine().bell.load(std::memory_order_acquire);
    mine().sleeping.store(how, std::memory_order_seq_cst);
    if (mine().fences.load(std::memory_order_relaxed) == 0)
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else if (!os::heavy_fence())
      fall_back();
  }
  void sleep(duration at_most) noexcept { os::futex_wait(mine().bell, seen_, at_most); }
  void finish() noexcept { mine().sleeping.store(shm_control_block::sleep::awake, std::memory_order_relaxed); }
  /// Ends a sleep() of this rank, from any thread.
  void wake_self() noexcept {
    mine().bell.fetch_add(1, std::memory_order_release);
    os::futex_wake(mine().bell);
  }

 private:
  [[nodiscard]] shm_control_block::rank_block& mine() const noexcept { return area_.block(rank_); }

  // From now on the ranks that ring make the fences. The store of one that has checked before is visible after this
  // pause.
  void fall_back() noexcept {
    mine().fences.store(0, std::memory_order_seq_cst);
    sleep(std::chrono::milliseconds{1});
  }

  shm_control_block area_;
  int rank_;
  bool reachable_;  // heavy fences of ranks that go to sleep reach this process
  std::uint32_t seen_ = 0;
  std::vector<os::event_fd> descriptors_;
};

}  // namespace tutti::detail
