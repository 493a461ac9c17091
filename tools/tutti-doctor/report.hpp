#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "facts.hpp"

namespace tutti::doctor {

/// Measurements of two ranks between them.
struct pair_link {
  int a = 0, b = 0;
  bool memory = false;    ///< they share memory; else TCP
  double latency_us = 0;  ///< one way, the best of some round trips
  double there_gbps = 0;  ///< 1e9 bytes per second from a to b
  double back_gbps = 0;   ///< and from b to a
};

/// The clock of another machine, compared with that of rank 0.
struct clock_offset {
  int rank = 0;  ///< the lowest of the machine
  double seconds = 0;
  double uncertainty = 0;
};

/// Everything that rank 0 knows in the end.
struct report {
  std::vector<rank_facts> ranks;
  std::vector<pair_link> pairs;
  std::vector<clock_offset> clocks;
  std::string not_measured;  ///< reason why pairs were not measured
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(pair_link, a, b, memory, latency_us, there_gbps, back_gbps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(clock_offset, rank, seconds, uncertainty)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(report, ranks, pairs, clocks, not_measured)

}  // namespace tutti::doctor
