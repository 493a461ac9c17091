#include "tutti-flight/verdict.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <tutti/watch/last_call.hpp>

namespace tutti::flight_tool {
namespace {

using watch::flight;
using watch::progress;

/// The key of a group: groups without common ranks may have one context.
using group_key = std::pair<std::uint16_t, std::vector<int>>;

group_key key_of(const flight& f, const watch::operation& o) {
  const flight::group* g = f.group_of(o);
  return {o.context, g ? g->ranks : std::vector<int>{}};
}

bool in_flight_or_failed(const flight::entry& e) {
  return e.what.state == progress::scheduled || e.what.state == progress::started || e.what.state == progress::failed;
}

position position_of(const recorded_world& w, int rank) {
  position p;
  p.rank = rank;
  const recorded_rank* r = w.find(rank);
  if (!r) {
    p.recorded = false;
    p.since = -1;
    return p;
  }
  const flight& f = r->flight;
  const std::int64_t now = f.taken != 0 ? f.taken : w.now;
  // Clocks of two machines may have been read for it.
  const auto until_then = [](std::int64_t from, std::int64_t until) {
    return (std::max)(until - from, std::int64_t{0});
  };
  // The first that has not ended well: after a failure, all later ones fail.
  for (const bool messages : {false, true})
    for (const flight::entry& e : f.entries)
      if (!p.waits && e.what.call.is_message() == messages && in_flight_or_failed(e)) {
        p.waits = true;
        p.at = &e;
        p.since = until_then(e.issued, e.ended != 0 ? e.ended : now);
      }
  if (p.waits) return p;
  if (f.entries.empty()) {
    p.since = -1;
    return p;
  }
  p.at = &f.entries.back();
  p.since = until_then(p.at->ended, f.left != 0 ? f.left : now);
  return p;
}

const flight::entry* find_call(const flight& f, const group_key& g, std::uint64_t sequence) {
  for (const flight::entry& e : f.entries)
    if (!e.what.call.is_message() && e.what.context == g.first && e.what.sequence == sequence) return &e;
  return nullptr;
}

/// Returns true if the calls of two ranks fit together.
bool same_call(const watch::operation& a, const watch::operation& b) {
  const bool alike = a.call.has_equal_counts(a.type) || b.call.has_equal_counts(b.type);
  return a.call.number == b.call.number && a.other == b.other && a.reduction == b.reduction &&
         (!alike || (a.count == b.count && a.type == b.type));
}

/// Ranks that have not made the call that a rank waits in, or the peer of its message.
std::vector<int> awaited_by(const recorded_world& w, const position& p) {
  std::vector<int> those;
  const flight& f = w.find(p.rank)->flight;
  const watch::operation& o = p.at->what;
  const group_key g = key_of(f, o);
  if (o.call.is_message()) {
    if (o.other >= 0 && static_cast<std::size_t>(o.other) < g.second.size())
      those.push_back(g.second[static_cast<std::size_t>(o.other)]);
    return those;
  }
  for (const int member : g.second)
    if (const recorded_rank* r = w.find(member);
        r ? watch::last_collective(r->flight, g.first) < o.sequence : w.missing == absence::fault)
      those.push_back(member);
  return those;
}

/// The wait that the verdict is about: of the earliest collective among those that last longer than `patience`.
const position* longest(const verdict& v, std::int64_t patience) {
  const position* found = nullptr;
  for (const position& p : v.positions)
    if (p.waits && (v.failed || p.since >= patience) && (!found || p.since > found->since)) found = &p;
  return found;
}

}  // namespace

verdict judge(const recorded_world& w, std::chrono::nanoseconds patience) {
  verdict v;
  int lost = -1;
  for (const recorded_rank& r : w.ranks) {
    if (r.flight.failed == 0) continue;
    v.failed = true;
    if (v.failure == errc::ok || r.flight.failure == errc::peer_lost) v.failure = r.flight.failure;
    const bool of_a_rank =
        r.flight.failure == errc::peer_lost || r.flight.failure == errc::peer_left || r.flight.failure == errc::aborted;
    if (of_a_rank && r.flight.failed_peer >= 0 && r.flight.failed_peer < w.size) lost = r.flight.failed_peer;
  }
  for (int r = 0; r < w.size; ++r) v.positions.push_back(position_of(w, r));
  for (position& p : v.positions)
    if (p.waits) p.waits_for = awaited_by(w, p);
  v.arrival = skew_of(w);
  const position* const first = longest(v, patience.count());
  if (lost >= 0) {
    v.what = finding::lost;
    v.suspected = {lost};
    return v;
  }
  if (!first) return v;

  const auto at = [&](int rank) -> const position& { return v.positions[static_cast<std::size_t>(rank)]; };
  const auto wide = [&](auto condition) {
    std::vector<int> those;
    for (int r = 0; r < w.size; ++r)
      if (condition(r)) those.push_back(r);
    return those;
  };
  const auto stopped = [&](int r) {
    const recorded_rank* const known = w.find(r);
    if (!known) return w.missing == absence::fault;
    return known->process == process_state::stopped ||
           (!v.failed && known->process == process_state::gone && known->flight.left == 0);
  };

  // All ranks that somebody waits for, and that have not made the call. What began soon after the longest wait counts,
  // too.
  std::set<int> absent, unknown;
  // By group: ranks whose call differs, and those from whose it does.
  std::map<group_key, std::map<int, std::set<int>>> other_call;
  for (const position& p : v.positions) {
    if (!p.waits || p.at->what.call.is_message() || (!v.failed && p.since < patience.count() / 2)) continue;
    const flight& f = w.find(p.rank)->flight;
    const group_key g = key_of(f, p.at->what);
    for (const int member : g.second) {
      const recorded_rank* const other = w.find(member);
      if (!other && w.missing == absence::elsewhere) {
        unknown.insert(member);
      } else if (!other || watch::last_collective(other->flight, g.first) < p.at->what.sequence) {
        absent.insert(member);
      } else if (const auto* same = find_call(other->flight, g, p.at->what.sequence);
                 same && !same_call(same->what, p.at->what)) {
        other_call[g][member].insert(p.rank);
      }
    }
  }
  if (!other_call.empty()) {
    v.what = finding::mismatch;
    // Those that differ from more ranks than they agree with.
    std::set<int> all_odd;
    for (const auto& [group, differing] : other_call) {
      std::size_t most = 0;
      for (const auto& [rank, from] : differing) most = (std::max)(most, from.size());
      std::vector<int> odd;
      for (const auto& [rank, from] : differing)
        if (from.size() == most) odd.push_back(rank);
      if (odd.size() * 2 < group.second.size()) all_odd.insert(odd.begin(), odd.end());
    }
    v.suspected.assign(all_odd.begin(), all_odd.end());
    return v;
  }
  if (absent.empty()) {
    v.suspected = wide(stopped);
    v.what = v.suspected.empty() ? finding::together : finding::missing;
    if (v.suspected.empty() && !unknown.empty()) {
      v.what = finding::elsewhere;
      v.suspected.assign(unknown.begin(), unknown.end());
    }
    // A receive waits for its sender.
    if (v.suspected.empty() && first->at->what.call.is_message()) {
      v.suspected = first->waits_for;
      const bool known =
          w.missing == absence::fault || std::ranges::all_of(v.suspected, [&](int r) { return w.find(r); });
      v.what = v.suspected.empty() ? finding::message : known ? finding::missing : finding::elsewhere;
    }
    return v;
  }
  v.what = finding::missing;
  for (const int r : absent)
    if (stopped(r)) v.suspected.push_back(r);
  if (!v.suspected.empty()) return v;
  for (const int r : absent)
    if (!at(r).waits) v.suspected.push_back(r);
  if (!v.suspected.empty()) return v;
  // All wait, in different calls: the smaller party is at fault, if there is one.
  v.what = finding::mismatch;
  const std::size_t waiting = static_cast<std::size_t>(std::ranges::count_if(v.positions, &position::waits));
  if (absent.size() * 2 < waiting) v.suspected.assign(absent.begin(), absent.end());
  if (v.suspected.empty()) {
    std::map<std::pair<std::uint16_t, std::uint64_t>, std::vector<int>> parties;
    for (const position& p : v.positions)
      if (p.waits) parties[{p.at->what.context, p.at->what.sequence}].push_back(p.rank);
    const auto smallest = std::ranges::min_element(parties, {}, [](const auto& party) { return party.second.size(); });
    if (smallest != parties.end() && smallest->second.size() * 2 < waiting) v.suspected = smallest->second;
  }
  return v;
}

recorded_world choose_world(std::vector<recorded_world> all, std::chrono::nanoseconds patience) {
  std::ranges::sort(all, std::ranges::greater{}, [](const recorded_world& w) {
    std::int64_t newest = 0;
    for (const recorded_rank& r : w.ranks) newest = (std::max)(newest, r.flight.joined);
    return newest;
  });
  const auto stuck = std::ranges::find_if(all, [&](const recorded_world& w) {
    const verdict v = judge(w, patience);
    return v.what != finding::nothing && !v.failed;
  });
  return std::move(stuck == all.end() ? all.front() : *stuck);
}

}  // namespace tutti::flight_tool
