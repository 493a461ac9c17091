#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include <tutti/cuda/cuda.hpp>
#include <tutti/tutti.hpp>

#include "timed_event.hpp"

namespace bench {

inline void check(ncclResult_t met, const char* call) {
  if (met != ncclSuccess && met != ncclInProgress)
    throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(met));
}

enum class raw_calls { blocking, nonblocking };

/// An NCCL communicator without tutti, with the calls around each operation that a careful user writes: the operation
/// runs in another stream, after the earlier work of the user's stream and before its later work. Collective over
/// `world`.
class raw_nccl {
 public:
  raw_nccl(tutti::communicator<>& world, int device, raw_calls how) : stream_(device), before_(device), after_(device) {
    struct {
      ncclUniqueId bytes;
    } id{};
    if (world.rank() == 0) check(ncclGetUniqueId(&id.bytes), "ncclGetUniqueId");
    world.broadcast(std::span{&id, 1}, 0).wait();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = how == raw_calls::blocking ? 1 : 0;
    check(ncclCommInitRankConfig(&comm_, world.size(), id.bytes, world.rank(), &config), "ncclCommInitRankConfig");
    waits_ = how == raw_calls::nonblocking;
    settle();
  }
  raw_nccl(const raw_nccl&) = delete;
  raw_nccl& operator=(const raw_nccl&) = delete;
  ~raw_nccl() {
    static_cast<void>(cudaStreamSynchronize(stream_.native()));
    static_cast<void>(ncclCommAbort(comm_));
  }

  void all_reduce_alone(const float* in, float* out, std::size_t count, ncclRedOp_t with, cudaStream_t s) const {
    check(ncclAllReduce(in, out, count, ncclFloat32, with, comm_, s), "ncclAllReduce");
    settle();
  }
  void all_reduce(const float* in, float* out, std::size_t count, ncclRedOp_t with, cudaStream_t user) {
    issue(in, out, count, with, user);
    after_.join(user);
  }
  /// Issues an all_reduce, for which the user's stream does not wait; finish() makes it wait for all that were issued.
  void issue(const float* in, float* out, std::size_t count, ncclRedOp_t with, cudaStream_t user) {
    before_.record(user);
    before_.join(stream_.native());
    all_reduce_alone(in, out, count, with, stream_.native());
    after_.record(stream_.native());
  }
  void finish(cudaStream_t user) { after_.join(user); }

 private:
  /// Waits until a non-blocking communicator is ready: only then may it be called again, or its work be waited for.
  void settle() const {
    if (!waits_) return;
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, "NCCL");
  }

  tutti::cuda::stream stream_;
  tutti::cuda::event before_, after_;
  ncclComm_t comm_ = nullptr;
  bool waits_ = false;
};

}  // namespace bench
