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

/// What is measured as sums that add up over samples and over ranks: `sums()` are all of them, equally many on every
/// rank. Counts are exact up to 2^53.
template <class M>
concept metric = requires(M& m) {
  { m.sums() } noexcept -> std::convertible_to<std::span<double>>;
};

/// Adds up metrics over the ranks, all of them in one operation; each then tells about the samples of all ranks, and
/// all ranks hold equal bits. Collective: the same metrics in the same order on every rank. Once per evaluation: what
/// is combined a second time counts n times, so reset() before the next one. The metrics must outlive the task.
/// Errors: as of all_reduce. Cost: one all_reduce of 8 bytes for each sum.
template <class Comm, metric... M>
task<> combine(Comm& world, M&... metrics) {
  const std::array<std::span<double>, sizeof...(M)> all{metrics.sums()...};
  co_await world.all_reduce_coalesced(std::span{all}, sum);
}

}  // namespace tutti::train
