#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/cuda/device_memory.hpp>

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

namespace detail {

/// cudaFree waits for every kernel on the device, and one of them may hang.
template <class T, cuda::runtime_api R>
void free_bounded(cuda::basic_device_memory<T, R> memory, deadline limit) noexcept try {
  bounded_call freeing;
  freeing.start([p = memory.release()] { static_cast<void>(R::deallocate(p)); });
  static_cast<void>(freeing.wait(limit));
} catch (const std::exception&) {  // no memory for that: a byte of the device's is left behind
}

}  // namespace detail
}  // namespace tutti
