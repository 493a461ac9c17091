#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tutti-flight/load.hpp"

namespace tutti::flight_tool {

/// Arrivals of one rank in collectives of all ranks.
struct arrivals {
  static constexpr std::array<double, 7> limits{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10};  ///< seconds
  std::array<std::size_t, limits.size() + 1> within{};  ///< by the time after the first rank; the last one: beyond
  std::size_t last = 0;                                 ///< collectives in which it came last
  double seconds = 0;                                   ///< the sum of `leads`
  std::vector<double> leads;                            ///< its times after the one before it, when it was the last
};

/// Arrivals of all ranks in some collectives.
struct skew {
  std::size_t compared = 0;     ///< collectives
  std::vector<arrivals> ranks;  ///< by world rank
  int late_rank = -1;           ///< the rank that holds the others up most by far; -1: none stands out
  double late_share = 0;        ///< of the collectives, in which it is the last
  double late_seconds = 0;      ///< after the one before it, on average

  /// Returns true if there is enough to compare the ranks by.
  [[nodiscard]] bool is_enough() const noexcept { return compared >= 10; }
};

struct skew_report {
  skew collectives;                        ///< all of them
  skew buckets;                            ///< those of a gradient reducer
  std::map<std::int64_t, skew> by_bucket;  ///< the same, by the number of the bucket
};

/// Compares the times at which the ranks have issued the collectives of all ranks that their recordings hold. Empty if
/// the recording of a rank is missing. Clocks of several machines are set against each other.
skew_report skew_of(const recorded_world& w);

/// Returns the median of numbers, of which there is at least one.
template <class Number>
Number median(std::vector<Number> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::ranges::nth_element(of, middle);
  return *middle;
}

/// Returns "Rank 2 is the last in 93 % of 400 collectives, by 4.1 ms on average.", or nothing if no rank stands out.
std::string sentence(const skew& s, const char* of);
/// Returns the histograms of all ranks as a table, and a line for each bucket.
std::string table(const skew_report& r);
nlohmann::ordered_json in_json(const skew_report& r);

}  // namespace tutti::flight_tool
