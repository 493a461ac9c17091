#pragma once
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/hook.hpp>

namespace tutti::grad {

/// A hook for ranks whose batches are equally large: the mean over all ranks, as DistributedDataParallel's, divided
/// while it is summed. Saves the default's passes over the gradients, which outlast the all_reduce between ranks of one
/// machine. Weights are not looked at, but for 0: that rank counts as zeros, and still as one of n. `how` is that of
/// each all_reduce. Cost: one all_reduce per bucket, and one of its tail of a line or more.
struct mean_hook {
  static constexpr scaling scale = scaling::none;
  issue how{};

  template <class Comm, number T>
  task<> operator()(Comm& world, bucket_view<T> b) const {
    op tail =
        world.all_reduce(b.tail(), sum, how, b.where);  // first: what arguments are evaluated in is anyone's choice
    return both(world.all_reduce(b.gradients(), mean, how, b.where), std::move(tail));
  }

 private:
  static task<> both(op gradients, op tail) {
    op first = std::move(gradients), second = std::move(tail);  // parameters live as long as the task
    co_await std::move(first);
    co_await std::move(second);
  }
};

}  // namespace tutti::grad
