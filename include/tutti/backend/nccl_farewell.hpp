#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti {

/// The good end of a communicator: what is in flight ends, peers are waited for until `limit`, then its memory is
/// freed; after the limit it is aborted. Each of NCCL's calls may hang: to be made on a thread that can be left behind.
template <nccl_functions Api>
void nccl_farewell(nccl_comm comm, deadline limit) noexcept {
  nccl_result r = Api::finalize(comm);
  while (r == nccl_result::in_progress && clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (Api::async_error(comm, r) != nccl_result::success) r = nccl_result::internal;
  }
  static_cast<void>(r == nccl_result::success ? Api::destroy(comm) : Api::abort(comm));
}

/// What a failure has left of a communicator: one that was revoked can still be shrunk. Its owner is whoever takes it.
class nccl_remains {
 public:
  void leave(nccl_comm comm) noexcept { comm_.store(comm, std::memory_order_release); }
  /// Null: nothing was left, or somebody has taken it.
  [[nodiscard]] nccl_comm take() noexcept { return comm_.exchange(nullptr, std::memory_order_acq_rel); }

 private:
  std::atomic<nccl_comm> comm_{nullptr};
};

/// Whether a communicator that failed is to be of use still.
enum class nccl_halt : std::uint8_t { abort, revoke };

/// Stops what is in flight, on a thread that can be left behind. Revoked, it must be ready for more until `limit`; else
/// it is aborted.
template <nccl_functions Api>
void nccl_stop(nccl_comm comm, nccl_halt how, deadline limit, nccl_remains& left) noexcept {
  if (how == nccl_halt::revoke) {
    nccl_result r = Api::revoke(comm);
    // Calls that block do not tell what NCCL's thread has met of a dead peer, with which nothing can be shrunk.
    if (r == nccl_result::success && Api::async_error(comm, r) != nccl_result::success) r = nccl_result::internal;
    while (r == nccl_result::in_progress && clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (Api::async_error(comm, r) != nccl_result::success) r = nccl_result::internal;
    }
    if (r == nccl_result::success) return left.leave(comm);
  }
  static_cast<void>(Api::abort(comm));
}

namespace detail {

/// cudaFree waits for every kernel on the device, and one of them may hang. True if it is freed.
template <class T, cuda::runtime_api R>
bool free_bounded(cuda::basic_device_memory<T, R> memory, deadline limit) noexcept {
  return call_bounded(limit, [p = memory.release()] {
    const cuda::relaxed_capture<R> any_time;
    static_cast<void>(R::deallocate(p));
  });
}

}  // namespace detail
}  // namespace tutti
