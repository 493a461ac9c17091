#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti {

/// Ends a communicator in good order: waits until its operations have ended, and for peers until `limit`, then frees
/// its memory; after the limit, aborts it. Each of NCCL's calls may hang, so this must run on a thread that can be left
/// behind.
template <nccl_functions Api>
void nccl_shut_down(nccl_comm comm, deadline limit) noexcept {
  nccl_result r = Api::finalize(comm);
  while (r == nccl_result::in_progress && clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (Api::async_error(comm, r) != nccl_result::success) r = nccl_result::internal;
  }
  static_cast<void>(r == nccl_result::success ? Api::destroy(comm) : Api::abort(comm));
}

/// The communicator that a failure has left: a revoked one can still be shrunk. The caller of take() owns it.
class nccl_remains {
 public:
  void leave(nccl_comm comm) noexcept { comm_.store(comm, std::memory_order_release); }
  /// Returns the communicator, or null if there is none, or it was taken before.
  [[nodiscard]] nccl_comm take() noexcept { return comm_.exchange(nullptr, std::memory_order_acq_rel); }

 private:
  std::atomic<nccl_comm> comm_{nullptr};
};

/// The way to stop a communicator that failed: for good, or for later use.
enum class nccl_halt : std::uint8_t { abort, revoke };

/// Stops all operations in flight, on a thread that can be left behind. A revoked communicator must be usable by
/// `limit`; else it is aborted.
template <nccl_functions Api>
void nccl_stop(nccl_comm comm, nccl_halt how, deadline limit, nccl_remains& left) noexcept {
  if (how == nccl_halt::revoke) {
    nccl_result r = Api::revoke(comm);
    // Blocking calls do not return what NCCL's thread has met about a dead peer, with which nothing can be shrunk.
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

/// Frees device memory on a thread of its own, since cudaFree waits for every kernel on the device, and one may hang.
/// Returns true if it was freed by `limit`.
template <class T, cuda::runtime_api R>
bool free_bounded(cuda::basic_device_memory<T, R> memory, deadline limit) noexcept {
  return call_bounded(limit, [p = memory.release()] {
    const cuda::relaxed_capture<R> any_time;
    static_cast<void>(R::deallocate(p));
  });
}

}  // namespace detail
}  // namespace tutti
