#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/config.hpp>

namespace tutti {

/// A group of ranks on a transport: all of them, or a subset with ranks of its own.
struct group {
  std::uint32_t context = 0;  ///< keeps the messages of groups apart
  int rank = 0;
  int size = 1;
  std::vector<int> members;  ///< world ranks; empty for all

  [[nodiscard]] int world_rank(int r) const noexcept {
    return members.empty() ? r : members[static_cast<std::size_t>(r)];
  }
  /// The rank here of a world rank that is among the members.
  [[nodiscard]] int rank_of(int world) const noexcept {
    int r = members.empty() ? world : 0;
    while (!members.empty() && members[static_cast<std::size_t>(r)] != world) ++r;
    return r;
  }
};

}  // namespace tutti
