#pragma once
#include <tutti/backend/nccl/api.hpp>
#include <tutti/backend/nccl/memory.hpp>
#include <tutti/bootstrap/nccl/make.hpp>
#include <tutti/bootstrap/nccl/shrink.hpp>
#include <tutti/communicator.hpp>
#include <tutti/cuda/cuda.hpp>

namespace tutti {

/// Backend of NVIDIA's GPUs over the NCCL that is linked: `communicator<nccl>`.
using nccl = basic_nccl<nccl_api>;
/// Device memory that NCCL knows; see basic_nccl_memory.
template <class T>
using nccl_memory = basic_nccl_memory<T, nccl_api>;

/// Returns a communicator over the GPUs of a world's ranks; see make_nccl(). Collective over `world`.
/// `auto world = tutti::init(); auto gpus = tutti::gpu_world(world);`
template <backend Host>
[[nodiscard]] communicator<nccl> gpu_world(communicator<Host>& world, const nccl_options& options = {}) {
  return make_nccl<nccl_api>(world, options);
}

/// Returns a communicator over the GPUs of the ranks that have survived a failure; see shrink_nccl(). Collective over
/// `survivors`.
template <backend Host>
[[nodiscard]] communicator<nccl> shrink(communicator<nccl>& failed, communicator<Host>& survivors,
                                        const nccl_options& options = {}) {
  return shrink_nccl<nccl_api>(failed, survivors, options);
}

}  // namespace tutti
