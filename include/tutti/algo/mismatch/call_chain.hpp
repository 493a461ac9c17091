#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tutti/config.hpp>

namespace tutti::algo {

/// Digest of all collectives that a rank has called in a group: their number and a hash of their signatures. Equal on
/// ranks that have made the same calls.
struct call_chain {
  std::uint64_t calls = 0;
  std::uint64_t hash = 0;

  friend constexpr bool operator==(const call_chain&, const call_chain&) = default;
};

/// Returns the first rank that differs from a majority of ranks with equal calls; -1 if all are equal, or if there is
/// no majority. `most` becomes a rank of the majority, or a rank that differs from rank 0; -1 if all are equal.
inline int find_odd(std::span<const call_chain> all, int& most) noexcept {
  most = -1;
  const auto n = all.size();
  for (std::size_t r = 1; r < n && most < 0; ++r)
    if (all[r] != all[0]) most = static_cast<int>(r);
  for (std::size_t r = 0; r < n && most >= 0; ++r) {
    std::size_t same = 0;
    for (const call_chain& c : all) same += c == all[r];
    if (2 * same <= n) continue;
    most = static_cast<int>(r);
    for (std::size_t odd = 0; odd < n; ++odd)
      if (all[odd] != all[r]) return static_cast<int>(odd);
  }
  return -1;
}

/// Returns the words for the difference between two ranks' calls.
inline std::string difference(const call_chain& a, const std::string& a_name, const call_chain& b,
                              const std::string& b_name) {
  if (a.calls != b.calls)
    return a_name + " has called " + std::to_string(a.calls) + " collectives here, and " + b_name + " " +
           std::to_string(b.calls);
  return a_name + " and " + b_name + " have called " + std::to_string(a.calls) +
         " collectives here, of which at least one is not the same: another collective, root, reduction, number or "
         "type "
         "of elements";
}

}  // namespace tutti::algo
