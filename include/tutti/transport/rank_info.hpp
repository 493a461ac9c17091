#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/os/process.hpp>

namespace tutti {

/// Description of one rank, which all ranks of a world know; gathered by roll call before the transport is made.
struct rank_info {
  int rank = -1;
  int local_rank = 0;  ///< number among the ranks of its node
  int local_size = 1;  ///< ranks on its node
  int local_cpus = 0;  ///< CPUs that the ranks of its node may use together; 0 if they did not tell
  int node_rank = 0;   ///< number of its node, in order of the nodes' lowest ranks
  std::string host;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< of the process, so that a recycled pid is not taken for it
  std::uint64_t token = 0;       ///< random: that of no other world that the process has joined
  std::string memory_domain;     ///< equal for processes that can share memory
  std::string endpoint;          ///< "10.0.0.7:41233"; empty when the rank does not listen on TCP
  std::string shared_memory;     ///< of the node's lowest rank: where it hands out the segment; else empty
};

/// Roster: all ranks of a world, in rank order.
using roster = std::vector<rank_info>;

/// Returns "rank 3 (host b, pid 712)".
inline std::string describe(const rank_info& p) {
  return "rank " + std::to_string(p.rank) + " (host " + p.host + ", pid " + std::to_string(p.pid) + ")";
}

/// Returns the number of ranks per CPU on the node of `p`. If the ranks there did not tell their CPUs, it counts those
/// that this process may use.
[[nodiscard]] inline double ranks_per_core(const rank_info& p) {
  return static_cast<double>(p.local_size) / static_cast<double>(p.local_cpus > 0 ? p.local_cpus : os::usable_cpus());
}

}  // namespace tutti
