#pragma once
#include <chrono>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// The identity of the NCCL communicator that a driver is for.
struct nccl_place {
  int device = 0;
  int rank = 0, size = 1;
  int world_rank = 0;                            ///< this rank's number in failures
  int version = 0;                               ///< version of NCCL
  duration patience = std::chrono::seconds(10);  ///< time for NCCL and the device to stop after a failure
};

}  // namespace tutti
