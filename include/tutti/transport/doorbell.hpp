#pragma once
#include <atomic>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/event_fd.hpp>
#include <tutti/transport/shared_area.hpp>

namespace tutti {

/// Sleeps as one rank of a shared area and wakes the others. Whoever stores something that a peer may wait for calls
/// ring(peer) afterwards; it costs a fence and a load while the peer is awake.
class doorbell {
 public:
  doorbell(shared_area area, int rank) noexcept : area_(area), rank_(rank) {}

  void ring(int peer) noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the caller's stores before the look at `sleeping`
    auto& b = area_.block(peer);
    switch (b.sleeping.load(std::memory_order_relaxed)) {
      case shared_area::sleep::awake:
        return;
      case shared_area::sleep::on_futex:
        b.bell.fetch_add(1, std::memory_order_release);
        os::futex_wake(b.bell);
        return;
      case shared_area::sleep::on_descriptor:
        if (static_cast<std::size_t>(peer) < descriptors_.size()) descriptors_[static_cast<std::size_t>(peer)].notify();
        return;
    }
  }
  void ring_all() noexcept {
    for (int r = 0; r < area_.ranks(); ++r)
      if (r != rank_) ring(r);
  }

  /// For ranks that sleep on descriptors: the peers' eventfds, by rank.
  void wake_by(std::vector<os::event_fd> descriptors) noexcept { descriptors_ = std::move(descriptors); }

  void prepare(shared_area::sleep how) noexcept {
    seen_ = mine().bell.load(std::memory_order_acquire);
    mine().sleeping.store(how, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void sleep(duration at_most) noexcept { os::futex_wait(mine().bell, seen_, at_most); }
  void finish() noexcept { mine().sleeping.store(shared_area::sleep::awake, std::memory_order_relaxed); }
  void wake_self() noexcept {
    mine().bell.fetch_add(1, std::memory_order_release);
    os::futex_wake(mine().bell);
  }

 private:
  [[nodiscard]] shared_area::rank_block& mine() const noexcept { return area_.block(rank_); }

  shared_area area_;
  int rank_;
  std::uint32_t seen_ = 0;
  std::vector<os::event_fd> descriptors_;
};

}  // namespace tutti
