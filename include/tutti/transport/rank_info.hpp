#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/os/process.hpp>

namespace tutti {

/// What the ranks of a world know of each other; gathered by roll call before the transport is made.
struct rank_info {
  int rank = -1;
  int local_rank = 0;  ///< among the ranks of its machine
  int local_size = 1;  ///< ranks on its machine
  int local_cpus = 0;  ///< that the ranks of its machine may use together; 0 when they did not tell
  int node_rank = 0;   ///< its machine, in order of the machines' lowest ranks
  std::string host;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< of the process, so that a recycled pid is not taken for it
  std::string memory_domain;     ///< equal where two processes can share memory
  std::string endpoint;          ///< "10.0.0.7:41233"; empty when the rank does not listen on TCP
  std::string shared_memory;     ///< where the machine's lowest rank hands out the segment; else empty
};

/// All ranks of a world, in rank order.
using roster = std::vector<rank_info>;

/// "rank 3 (host b, pid 712)"
inline std::string describe(const rank_info& p) {
  return "rank " + std::to_string(p.rank) + " (host " + p.host + ", pid " + std::to_string(p.pid) + ")";
}

/// How many ranks share each CPU of the machine of `p`, as far as the ranks there told.
[[nodiscard]] inline double ranks_per_core(const rank_info& p) {
  return static_cast<double>(p.local_size) / static_cast<double>(p.local_cpus > 0 ? p.local_cpus : os::usable_cpus());
}

}  // namespace tutti
