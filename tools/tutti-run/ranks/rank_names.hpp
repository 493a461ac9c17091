#pragma once

#include <string>
#include <vector>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// Names of a launcher's ranks, by their index in it.
struct rank_names {
  int first = 0;                   ///< the rank with index 0
  std::vector<std::string> hosts;  ///< the machine of each; empty where there is one only

  int number(int index) const noexcept { return first + index; }

  /// "5", or "5 node2" where there are several machines.
  std::string shown(int index) const {
    const auto at = static_cast<std::size_t>(index);
    return at < hosts.size() ? text(number(index), ' ', hosts[at]) : text(number(index));
  }
  /// "rank 5", or "rank 5 on node2".
  std::string said(int index) const {
    const auto at = static_cast<std::size_t>(index);
    return at < hosts.size() ? text("rank ", number(index), " on ", hosts[at]) : text("rank ", number(index));
  }
};

}  // namespace tutti::launch
