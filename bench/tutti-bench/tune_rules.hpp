#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <tutti/core/options.hpp>

namespace bench {

/// The property on which the choice of an algorithm may depend; `nothing` if ranks do not know the others' sizes.
enum class what_counts { size, nothing };

struct series;

/// The time of each algorithm of a collective for messages of one size; 0 if it was not measured.
struct sample {
  std::size_t bytes;
  std::vector<double> seconds;

  [[nodiscard]] double best() const {
    double least = std::numeric_limits<double>::max();
    for (const double t : seconds)
      if (t > 0) least = std::min(least, t);
    return least;
  }
  [[nodiscard]] bool complete(const series& s) const;
};

/// The measurements of one collective for all sizes.
struct series {
  std::string collective;
  what_counts depends_on;
  std::vector<tutti::algorithm> algorithms;
  std::vector<sample> samples;  ///< by ascending size

  /// Returns true if an algorithm took more than twice the time of the best at the last size, and a larger multiple
  /// than at the size before, or was not measured there. Never if the last size is below 64 KiB: algorithms with many
  /// steps are slow for small messages and catch up later.
  [[nodiscard]] bool hopeless(std::size_t a) const {
    if (samples.size() < 2) return false;
    const sample& last = samples.back();
    if (last.seconds[a] <= 0) return true;
    if (last.bytes < (std::size_t{64} << 10)) return false;
    const sample& before = samples[samples.size() - 2];
    const double behind = last.seconds[a] / last.best();
    return behind > 2 && behind > before.seconds[a] / before.best();
  }
};

/// Returns true if all algorithms that are not hopeless were measured.
inline bool sample::complete(const series& s) const {
  for (std::size_t a = 0; a < seconds.size(); ++a)
    if (seconds[a] <= 0 && !s.hopeless(a)) return false;
  return true;
}

/// Returns the rules for one collective. Another algorithm is chosen from a size on if it is faster by a twentieth, for
/// a single size only if it is faster by a fifth. The bound between two sizes is their geometric mean.
inline std::string rules_of(const series& s, const std::string& links, int ranks) {
  constexpr double worth_it = 0.95, worth_it_once = 0.8;
  if (s.samples.empty() && s.algorithms.size() != 1) return {};
  std::string rules;
  const auto rule = [&](const std::string& bytes, std::size_t a) {
    rules += s.collective + " " + links + " " + std::to_string(ranks) + " " + bytes + " " +
             tutti::name(s.algorithms[a]) + "\n";
  };
  const auto fastest = [](const std::vector<double>& times) {
    std::size_t best = times.size();
    for (std::size_t a = 0; a < times.size(); ++a)
      if (times[a] > 0 && (best == times.size() || times[a] < times[best])) best = a;
    return best;
  };
  if (s.algorithms.size() == 1) {
    rule("*", 0);
    return rules;
  }
  if (s.depends_on == what_counts::nothing) {
    std::vector<double> product(s.algorithms.size(), 1);  // of the ratios to the best time at each size
    for (std::size_t a = 0; a < product.size(); ++a)
      for (const sample& m : s.samples) product[a] *= m.seconds[a] > 0 ? m.seconds[a] / m.best() : 2;
    rule("*", fastest(product));
    return rules;
  }
  const auto gains = [&](std::size_t i, std::size_t over, double worth) {
    const std::vector<double>& times = s.samples[i].seconds;
    return times[over] <= 0 || times[fastest(times)] < worth * times[over];
  };
  std::vector<std::size_t> chosen;  // algorithm for each size
  for (std::size_t i = 0; i < s.samples.size(); ++i)
    chosen.push_back(i != 0 && !gains(i, chosen.back(), worth_it) ? chosen.back() : fastest(s.samples[i].seconds));
  for (std::size_t i = 1; i + 1 < chosen.size(); ++i)
    if (chosen[i - 1] == chosen[i + 1] && !gains(i, chosen[i - 1], worth_it_once)) chosen[i] = chosen[i - 1];
  for (std::size_t i = 1; i < chosen.size(); ++i)
    if (chosen[i] != chosen[i - 1]) rule(std::to_string(2 * s.samples[i - 1].bytes), chosen[i - 1]);
  rule("*", chosen.back());
  return rules;
}

inline std::string table_of(const std::vector<series>& all, const std::string& links, int ranks) {
  std::string text = "tutti tuning 1\n# collective links ranks bytes algorithm\n";
  for (const series& s : all) text += rules_of(s, links, ranks);
  return text;
}

}  // namespace bench
