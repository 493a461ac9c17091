#include "tutti-flight/skew.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace tutti::flight_tool {
namespace {

using watch::flight;
using watch::progress;

/// A collective of all ranks: context of the group, and sequence.
using place = std::pair<std::uint16_t, std::uint64_t>;

struct moment {
  std::int64_t issued = 0, ended = 0, bucket = -1;
  bool synchronizes = false;  ///< ranks leave it at about the same time
};

std::map<place, moment> collectives_of(const flight& f) {
  std::map<place, moment> all;
  for (const flight::entry& e : f.entries) {
    const watch::operation& o = e.what;
    const flight::group* const g = f.group_of(o);
    if (o.call.is_message() || o.state != progress::completed || !g || std::ssize(g->ranks) != f.size) continue;
    const std::string_view call = o.call.name();
    all[{o.context, o.sequence}] = {e.issued, e.ended, o.bucket(), call == "all_reduce" || call == "barrier"};
  }
  return all;
}

/// Clock of a rank's machine relative to that of the first rank.
std::int64_t offset_of(const std::map<place, moment>& own, const std::map<place, moment>& reference) {
  std::vector<std::int64_t> differences;
  for (const auto& [where, m] : own)
    if (const auto other = reference.find(where); m.synchronizes && other != reference.end())
      differences.push_back(m.ended - other->second.ended);
  return differences.empty() ? 0 : median(std::move(differences));
}

/// Adds the arrivals in one collective: times, in the order of time, and ranks.
void add(skew& to, const std::vector<std::pair<std::int64_t, std::size_t>>& order) {
  to.ranks.resize(order.size());
  ++to.compared;
  for (const auto& [at, rank] : order) {
    const double after = static_cast<double>(at - order.front().first) / 1e9;
    const auto limit = std::ranges::lower_bound(arrivals::limits, after);
    ++to.ranks[rank].within[static_cast<std::size_t>(limit - arrivals::limits.begin())];
  }
  arrivals& last = to.ranks[order.back().second];
  ++last.last;
  last.leads.push_back(static_cast<double>(order.back().first - order[order.size() - 2].first) / 1e9);
  last.seconds += last.leads.back();
}

/// Returns the time that a rank has cost the others. On a busy machine every rank is late at times, by much: no time
/// counts for more than four times that rank's median.
double usual_cost(const arrivals& r) {
  if (r.leads.empty()) return 0;
  const double most = 4 * median(r.leads);
  double sum = 0;
  for (const double lead : r.leads) sum += (std::min)(lead, most);
  return sum;
}

/// Names the rank that is late: the one that costs the others most by far.
void judge(skew& s) {
  if (!s.is_enough()) return;
  std::vector<double> costs;
  for (const arrivals& r : s.ranks) costs.push_back(usual_cost(r));
  const auto most = std::ranges::max_element(costs);
  const auto rank = static_cast<std::size_t>(most - costs.begin());
  double next = 0;
  for (std::size_t r = 0; r < costs.size(); ++r)
    if (r != rank) next = (std::max)(next, costs[r]);
  const arrivals& worst = s.ranks[rank];
  if (worst.last == 0) return;
  const double share = static_cast<double>(worst.last) / static_cast<double>(s.compared);
  const double seconds = worst.seconds / static_cast<double>(worst.last);
  if (share * static_cast<double>(costs.size()) < 1.2 || seconds < 100e-6 || *most < 2 * next) return;
  s.late_rank = static_cast<int>(rank);
  s.late_share = share;
  s.late_seconds = seconds;
}

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[200];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string histograms(const skew& s, const char* of) {
  std::string text = print("Times from the first rank's arrival to each rank's, in %zu %s:\n", s.compared, of);
  text += "         last in   <= 10 us  <= 100 us    <= 1 ms   <= 10 ms  <= 100 ms     <= 1 s    <= 10 s     longer\n";
  for (std::size_t r = 0; r < s.ranks.size(); ++r) {
    text +=
        print("rank %-4zu %5.1f %%", r, 100 * static_cast<double>(s.ranks[r].last) / static_cast<double>(s.compared));
    for (const std::size_t n : s.ranks[r].within) text += print(" %10zu", n);
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json one_in_json(const skew& s) {
  auto ranks = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < s.ranks.size(); ++r)
    ranks.push_back({{"rank", r},
                     {"last", s.ranks[r].last},
                     {"last_by_seconds", s.ranks[r].seconds},
                     {"within", s.ranks[r].within}});
  return {{"compared", s.compared},
          {"late_rank", s.late_rank},
          {"late_share", s.late_share},
          {"late_seconds", s.late_seconds},
          {"ranks", ranks}};
}

}  // namespace

skew_report skew_of(const recorded_world& w) {
  skew_report r;
  if (w.ranks.size() < 2 || static_cast<int>(w.ranks.size()) != w.size) return r;
  std::vector<std::map<place, moment>> all;
  for (const recorded_rank& one : w.ranks) {
    all.push_back(collectives_of(one.flight));
    const bool same_clock = one.flight.boot == w.ranks.front().flight.boot;
    const std::int64_t offset = same_clock ? 0 : offset_of(all.back(), all.front());
    for (auto& [where, m] : all.back()) m.issued -= offset;
  }
  for (const auto& [where, first] : all.front()) {
    std::vector<std::pair<std::int64_t, std::size_t>> order;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (const auto at = all[i].find(where); at != all[i].end()) order.emplace_back(at->second.issued, i);
    if (order.size() != all.size()) continue;
    std::ranges::sort(order);
    add(r.collectives, order);
    if (first.bucket < 0) continue;
    add(r.buckets, order);
    add(r.by_bucket[first.bucket], order);
  }
  judge(r.collectives);
  judge(r.buckets);
  for (auto& [bucket, s] : r.by_bucket) judge(s);
  return r;
}

std::string sentence(const skew& s, const char* of) {
  if (s.late_rank < 0) return "";
  return print("Rank %d is the last in %.0f %% of %zu %s, by %.1f ms on average.\n", s.late_rank, s.late_share * 100,
               s.compared, of, s.late_seconds * 1e3);
}

std::string table(const skew_report& r) {
  if (r.collectives.compared == 0) return "No collective of all ranks is in all recordings.\n";
  std::string text = histograms(r.collectives, "collectives");
  if (r.buckets.compared == 0) return text;
  text += histograms(r.buckets, "gradient buckets");
  for (const auto& [bucket, s] : r.by_bucket) {
    text += "bucket " + std::to_string(bucket) + ": ";
    text += s.late_rank >= 0 ? sentence(s, "times") : print("no rank stands out in %zu times.\n", s.compared);
  }
  return text;
}

nlohmann::ordered_json in_json(const skew_report& r) {
  auto buckets = nlohmann::ordered_json::array();
  for (const auto& [bucket, s] : r.by_bucket) {
    auto one = one_in_json(s);
    one["bucket"] = bucket;
    buckets.push_back(std::move(one));
  }
  return {{"limits", arrivals::limits},
          {"collectives", one_in_json(r.collectives)},
          {"buckets", one_in_json(r.buckets)},
          {"by_bucket", buckets}};
}

}  // namespace tutti::flight_tool
