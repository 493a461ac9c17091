#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tutti/config.hpp>

namespace tutti::algo {

/// All collectives that a rank has called in a group, as two numbers: equal on ranks that have called the same.
struct call_chain {
  std::uint64_t calls = 0;
  std::uint64_t hash = 0;

  friend constexpr bool operator==(const call_chain&, const call_chain&) = default;
};

/// The first rank whose calls are not those of most ranks, -1 where most ranks have not called the same; `most` becomes
/// the rank that it differs from, -1 where none differs.
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

/// How the calls of two ranks differ, which are called so.
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
