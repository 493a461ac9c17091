#pragma once
#include <tutti/core/options.hpp>
#include <tutti/grad/hook.hpp>

namespace tutti::grad {

/// A hook for ranks whose batches are equally large: the mean over all ranks, as DistributedDataParallel's, divided
/// while it is summed. Weights are not looked at, but for 0: that rank counts as zeros, and still as one of n. Unlike
/// the default, it lets no bucket wait for ranks that have not begun. `how` is that of each all_reduce. Cost: one
/// all_reduce per bucket and nothing else, unless there are gradients of float16 or none of 32 or 64 bits, or the order
/// is launch_order::ready.
struct mean_hook {
  static constexpr scaling scale = scaling::averaged;
  static constexpr bool gathers = true;
  issue how{};

  template <class Comm, number T>
  auto operator()(Comm& world, bucket_view<T> b) const {
    return sum_hook{how}(world, b);
  }
};

}  // namespace tutti::grad
