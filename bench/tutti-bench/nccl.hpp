#pragma once
#include "sweep.hpp"

namespace bench {

/// Runs --backend nccl: prints the same table for the GPUs of the world's ranks. Defined in nccl.cpp, which needs CUDA
/// and NCCL, or in no_nccl.cpp, which reports that they were missing.
void run_on_gpus(communicator& world, const options& o, table& rows);

}  // namespace bench
