#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti::algo {

/// Where the ranks of a group are, as one of them sees it. Ranks are those of the group, in ascending order.
struct machine_map {
  std::vector<int> here;       ///< on the machine of this rank
  std::vector<int> elsewhere;  ///< this rank's counterparts, one of each machine: of equal place if all machines have
                               ///< as many ranks, else the lowest
  int place = 0;               ///< of this rank in `here`
  int across = -1;             ///< of this rank in `elsewhere`; -1 when another one speaks for its machine
  bool even = true;            ///< all machines have as many ranks
  int machines = 1;
  int ranks = 1;

  /// There is something to gain from knowing it: several machines, and several ranks on one of them.
  [[nodiscard]] bool layered() const noexcept { return machines > 1 && machines < ranks; }

  /// `machine_of[r]` names the machine of rank r by any number.
  static machine_map of(const std::vector<int>& machine_of, int rank) {
    machine_map m;
    m.ranks = static_cast<int>(machine_of.size());
    const auto machine = [&](int r) { return machine_of[static_cast<std::size_t>(r)]; };
    std::vector<int> counted(machine_of.size());  // ranks of r's machine below r
    std::vector<int> total(machine_of.size());    // ranks of the machine, at its lowest rank
    std::vector<int> lowest;
    for (int r = 0; r < m.ranks; ++r) {
      const auto first = std::find_if(lowest.begin(), lowest.end(), [&](int l) { return machine(l) == machine(r); });
      const int leader = first == lowest.end() ? r : *first;
      if (leader == r) lowest.push_back(r);
      counted[static_cast<std::size_t>(r)] = total[static_cast<std::size_t>(leader)]++;
      if (machine(r) == machine(rank)) m.here.push_back(r);
    }
    m.machines = static_cast<int>(lowest.size());
    m.place = counted[static_cast<std::size_t>(rank)];
    for (const int l : lowest) m.even = m.even && total[static_cast<std::size_t>(l)] == static_cast<int>(m.here.size());
    for (int r = 0; r < m.ranks; ++r)
      if (counted[static_cast<std::size_t>(r)] == (m.even ? m.place : 0)) {
        if (r == rank) m.across = static_cast<int>(m.elsewhere.size());
        m.elsewhere.push_back(r);
      }
    return m;
  }
};

}  // namespace tutti::algo
