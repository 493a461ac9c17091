#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// What a size took, in microseconds, and how many elements of its results were wrong.
struct timing {
  double us = 0;                      ///< per operation, mean over ranks of their mean
  double p50 = 0, p99 = 0, most = 0;  ///< per round, of the slowest rank
  std::uint64_t wrong = 0;

  /// `rounds`: of the slowest rank each.
  void tell(std::vector<double> rounds) {
    std::sort(rounds.begin(), rounds.end());
    p50 = rounds[rounds.size() / 2];
    p99 = rounds[rounds.size() * 99 / 100];
    most = rounds.back();
  }
};

}  // namespace bench
