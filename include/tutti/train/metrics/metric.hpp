#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <source_location>
#include <span>

#include <tutti/async/task.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti::train {

/// A quantity that is computed from sums over samples, which combine() adds up over the ranks. `sums()` returns all of
/// them, equally many on every rank. Counts are exact up to 2^53.
template <class M>
concept metric = requires(M& m) {
  { m.sums() } noexcept -> std::convertible_to<std::span<double>>;
};

/// Adds up metrics over the ranks, all in one operation. Afterwards each covers the samples of all ranks, with equal
/// bits on all. Collective: the same metrics in the same order on every rank. Call it once per evaluation and reset()
/// the metrics before the next: sums that are combined twice count n times, with n ranks. The metrics must outlive the
/// task. Errors: as of all_reduce. Cost: one all_reduce of 8 bytes for each sum.
template <class Comm, metric... M>
task<> combine(Comm& world, M&... metrics) {
  const std::array<std::span<double>, sizeof...(M)> all{metrics.sums()...};
  co_await world.all_reduce_coalesced(std::span{all}, sum);
}

}  // namespace tutti::train
