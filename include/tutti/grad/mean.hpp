#pragma once
#include <tutti/core/options.hpp>
#include <tutti/grad/hook.hpp>

namespace tutti::grad {

/// A hook for ranks with batches of equal size: the mean over all ranks, as DistributedDataParallel's, divided as it is
/// summed. Weights are ignored except 0: such a rank contributes zeros, and still counts as one of n. Unlike the
/// default, no bucket waits for ranks that have not begun. `how` applies to each all_reduce. Cost: one all_reduce per
/// bucket; one more, for the weights, if there are gradients of float16 or none of 32 or 64 bits, if the order is
/// launch_order::ready, or with more than 1024 ranks.
struct mean_hook {
  static constexpr scaling scale = scaling::averaged;
  static constexpr bool gathers = true, lists = true;
  call_options how{};

  template <class Comm, number T>
  auto operator()(Comm& world, bucket_view<T> b) const {
    return sum_hook{how}(world, b);
  }
};

}  // namespace tutti::grad
