#pragma once
#include <chrono>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// Which communicator of NCCL a driver is for.
struct nccl_place {
  int device = 0;
  int rank = 0, size = 1;
  int world_rank = 0;                            ///< by which failures name this rank
  int version = 0;                               ///< of NCCL
  duration patience = std::chrono::seconds(10);  ///< how long NCCL and the device may take to stop after a failure
};

}  // namespace tutti
