#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

/// The numbers in a list of the kernel's such as "0-3,8,10-11"; none where the text is not one.
std::vector<int> parse_cpu_list(std::string_view list);

/// The CPUs of each NUMA node, by ascending number of the node, of those in `allowed` only; nodes without any are left
/// out. `directory` is /sys/devices/system/node, or a stand-in; without node folders in it there is no node.
std::vector<std::vector<int>> numa_nodes(const std::string& directory, std::span<const int> allowed);

/// The CPUs of each rank: ranks next to each other share a node, and the nodes get equally many, the first ones one
/// more where that does not come out even. Fewer ranks than nodes: one each. Empty, to bind no rank, for one node or
/// none.
std::vector<std::vector<int>> spread_over(const std::vector<std::vector<int>>& nodes, int ranks);

}  // namespace tutti::launch
