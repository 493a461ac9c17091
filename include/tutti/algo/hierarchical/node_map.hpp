#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

/// Placement of a group's ranks on nodes, as seen by one of them. Ranks are numbers in the group, in ascending order.
struct node_map {
  std::vector<int> here;       ///< ranks on this rank's node
  std::vector<int> elsewhere;  ///< this rank's counterparts, one on each node: of the same local rank if
                               ///< all nodes have the same number of ranks, else the lowest
  std::vector<int> node;       ///< node of each rank; nodes are numbered in the order of their lowest ranks
  std::vector<int> leaders;    ///< node leader of each node: its lowest rank
  std::vector<int> in_order;   ///< the ranks of node 0, then those of node 1, and so on
  int place = 0;               ///< index of this rank in `here`
  int across = -1;             ///< index of this rank in `elsewhere`; -1 if another rank acts for its node
  bool even = true;            ///< all nodes have the same number of ranks
  int nodes = 1;
  int ranks = 1;

  /// Returns true if hierarchical algorithms can gain: several nodes, and several ranks on one of them.
  [[nodiscard]] bool layered() const noexcept { return nodes > 1 && nodes < ranks; }

  [[nodiscard]] int node_of(int rank) const noexcept { return node[static_cast<std::size_t>(rank)]; }
  /// Returns the rank with index `at` on node `on`. All nodes must have the same number of ranks.
  [[nodiscard]] int rank_at(int on, int at) const noexcept {
    return in_order[static_cast<std::size_t>(on) * here.size() + static_cast<std::size_t>(at)];
  }

  /// Returns the map of a group from the placement that the link knows.
  template <class Link>
  static node_map of(const Link& link, const group& g) {
    std::vector<int> placed(static_cast<std::size_t>(g.size));
    for (int r = 0; r < g.size; ++r) placed[static_cast<std::size_t>(r)] = link.machine_of(g.world_rank(r));
    return of(placed, g.rank);
  }
  /// Returns the map of a group from `placed`: `placed[r]` identifies the node of rank r by any number.
  static node_map of(const std::vector<int>& placed, int rank) {
    node_map m;
    m.ranks = static_cast<int>(placed.size());
    const auto named = [&](int r) { return placed[static_cast<std::size_t>(r)]; };
    std::vector<int> counted(placed.size());  // ranks of r's node below r
    std::vector<int> total(placed.size());    // ranks of the node, at its lowest rank
    for (int r = 0; r < m.ranks; ++r) {
      const auto first = std::find_if(m.leaders.begin(), m.leaders.end(), [&](int l) { return named(l) == named(r); });
      const int leader = first == m.leaders.end() ? r : *first;
      m.node.push_back(static_cast<int>(first - m.leaders.begin()));
      if (leader == r) m.leaders.push_back(r);
      counted[static_cast<std::size_t>(r)] = total[static_cast<std::size_t>(leader)]++;
      if (named(r) == named(rank)) m.here.push_back(r);
    }
    m.nodes = static_cast<int>(m.leaders.size());
    m.place = counted[static_cast<std::size_t>(rank)];
    for (const int l : m.leaders)
      m.even = m.even && total[static_cast<std::size_t>(l)] == static_cast<int>(m.here.size());
    for (int r = 0; r < m.ranks; ++r)
      if (counted[static_cast<std::size_t>(r)] == (m.even ? m.place : 0)) {
        if (r == rank) m.across = static_cast<int>(m.elsewhere.size());
        m.elsewhere.push_back(r);
      }
    for (int k = 0; k < m.nodes; ++k)
      for (int r = 0; r < m.ranks; ++r)
        if (m.node_of(r) == k) m.in_order.push_back(r);
    return m;
  }
};

}  // namespace tutti::algo
