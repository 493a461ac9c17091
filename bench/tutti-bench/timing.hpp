#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// The times of a size in microseconds, and the number of wrong elements of its results.
struct timing {
  double us = 0;                      ///< per operation, mean over ranks of their mean
  double p50 = 0, p99 = 0, most = 0;  ///< per round, of the slowest rank
  std::uint64_t wrong = 0;

  /// Sets the percentiles from the times of all rounds, each that of the slowest rank.
  void tell(std::vector<double> rounds) {
    std::sort(rounds.begin(), rounds.end());
    p50 = rounds[rounds.size() / 2];
    p99 = rounds[rounds.size() * 99 / 100];
    most = rounds.back();
  }
};

}  // namespace bench
