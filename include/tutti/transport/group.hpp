#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/config.hpp>

namespace tutti {

/// Group of ranks on a transport: the world, or a subset that numbers its ranks from 0.
struct group {
  std::uint32_t context = 0;  ///< number that keeps the messages of groups apart
  int rank = 0;
  int size = 1;
  std::vector<int> members;  ///< world ranks by rank of the group; empty for the world

  /// Returns the world rank of a rank of this group.
  [[nodiscard]] int world_rank(int r) const noexcept {
    return members.empty() ? r : members[static_cast<std::size_t>(r)];
  }
  /// Returns the rank in this group of a world rank that is a member.
  [[nodiscard]] int rank_of(int world) const noexcept {
    int r = members.empty() ? world : 0;
    while (!members.empty() && members[static_cast<std::size_t>(r)] != world) ++r;
    return r;
  }
};

}  // namespace tutti
