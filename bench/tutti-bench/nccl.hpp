#pragma once
#include "sweep.hpp"

namespace bench {

/// --backend nccl: the same table for the GPUs of the world's ranks. In nccl.cpp, which needs CUDA and NCCL, or in
/// no_nccl.cpp, which says that they were missing.
void run_on_gpus(communicator& world, const options& o, table& rows);

}  // namespace bench
