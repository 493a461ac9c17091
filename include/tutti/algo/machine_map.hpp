#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include <tutti/transport/lane.hpp>

namespace tutti::algo {

/// Where the ranks of a group are, as one of them sees it. Ranks are those of the group, in ascending order.
struct machine_map {
  std::vector<int> here;       ///< on the machine of this rank
  std::vector<int> elsewhere;  ///< this rank's counterparts, one of each machine: of equal place if all machines have
                               ///< as many ranks, else the lowest
  std::vector<int> machine;    ///< of each rank; machines are numbered in the order of their lowest ranks
  std::vector<int> lowest;     ///< rank of each machine
  std::vector<int> in_order;   ///< the ranks of machine 0, then those of machine 1, and so on
  int place = 0;               ///< of this rank in `here`
  int across = -1;             ///< of this rank in `elsewhere`; -1 when another one speaks for its machine
  bool even = true;            ///< all machines have as many ranks
  int machines = 1;
  int ranks = 1;

  /// There is something to gain from knowing it: several machines, and several ranks on one of them.
  [[nodiscard]] bool layered() const noexcept { return machines > 1 && machines < ranks; }

  [[nodiscard]] int machine_of(int rank) const noexcept { return machine[static_cast<std::size_t>(rank)]; }
  /// Of a place on a machine, where all have equally many.
  [[nodiscard]] int rank_at(int on, int at) const noexcept {
    return in_order[static_cast<std::size_t>(on) * here.size() + static_cast<std::size_t>(at)];
  }

  /// Of a group whose ranks the link places.
  template <class Link>
  static machine_map of(const Link& link, const group& g) {
    std::vector<int> placed(static_cast<std::size_t>(g.size));
    for (int r = 0; r < g.size; ++r) placed[static_cast<std::size_t>(r)] = link.machine_of(g.world_rank(r));
    return of(placed, g.rank);
  }
  /// `placed[r]` names the machine of rank r by any number.
  static machine_map of(const std::vector<int>& placed, int rank) {
    machine_map m;
    m.ranks = static_cast<int>(placed.size());
    const auto named = [&](int r) { return placed[static_cast<std::size_t>(r)]; };
    std::vector<int> counted(placed.size());  // ranks of r's machine below r
    std::vector<int> total(placed.size());    // ranks of the machine, at its lowest rank
    for (int r = 0; r < m.ranks; ++r) {
      const auto first = std::find_if(m.lowest.begin(), m.lowest.end(), [&](int l) { return named(l) == named(r); });
      const int leader = first == m.lowest.end() ? r : *first;
      m.machine.push_back(static_cast<int>(first - m.lowest.begin()));
      if (leader == r) m.lowest.push_back(r);
      counted[static_cast<std::size_t>(r)] = total[static_cast<std::size_t>(leader)]++;
      if (named(r) == named(rank)) m.here.push_back(r);
    }
    m.machines = static_cast<int>(m.lowest.size());
    m.place = counted[static_cast<std::size_t>(rank)];
    for (const int l : m.lowest)
      m.even = m.even && total[static_cast<std::size_t>(l)] == static_cast<int>(m.here.size());
    for (int r = 0; r < m.ranks; ++r)
      if (counted[static_cast<std::size_t>(r)] == (m.even ? m.place : 0)) {
        if (r == rank) m.across = static_cast<int>(m.elsewhere.size());
        m.elsewhere.push_back(r);
      }
    for (int k = 0; k < m.machines; ++k)
      for (int r = 0; r < m.ranks; ++r)
        if (m.machine_of(r) == k) m.in_order.push_back(r);
    return m;
  }
};

}  // namespace tutti::algo
