#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tutti-flight/skew.hpp"
#include "tutti-flight/verdict.hpp"

namespace tutti::flight_tool {
namespace {

std::string ranks(const std::vector<int>& all) {
  std::string text = all.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i + 1;
    while (end < all.size() && all[end] == all[end - 1] + 1) ++end;
    if (i != 0) text += ", ";
    text += std::to_string(all[i]);
    if (end - i == 2) text += ", " + std::to_string(all[i + 1]);
    if (end - i > 2) text += " to " + std::to_string(all[end - 1]);
    i = end;
  }
  return text;
}

std::string time(std::int64_t nanoseconds) {
  const double s = static_cast<double>(nanoseconds) / 1e9;
  char text[40];
  if (s >= 10)
    std::snprintf(text, sizeof text, "%.0f s", s);
  else if (s >= 0.1)
    std::snprintf(text, sizeof text, "%.1f s", s);
  else
    std::snprintf(text, sizeof text, "%.1f ms", s * 1e3);
  return text;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// "#42 broadcast eval.cpp:20".
std::string call(const watch::flight& f, const watch::flight::entry& e) {
  std::string text = "#" + std::to_string(e.what.sequence) + " " + e.what.call.name();
  if (e.what.context != 0 && !e.what.call.is_message()) text += " of split " + std::to_string(e.what.context);
  if (e.what.call.is_message() && e.what.other >= 0)
    text += (e.what.call.number == watch::call_kind::of("send").number ? " to rank " : " from rank ") +
            std::to_string(e.what.other);
  if (e.what.site != 0 && e.what.site < f.sites.size())
    text += " " + base_name(f.sites[e.what.site].file) + ":" + std::to_string(f.sites[e.what.site].line);
  return text;
}
std::string details(const watch::flight::entry& e) {
  if (e.what.count == 0) return "";
  std::string text = " (" + std::to_string(e.what.count) + " x " + std::string(name(e.what.type));
  if (e.what.bucket() >= 0) text += ", gradient bucket " + std::to_string(e.what.bucket());
  if (e.what.reduction) text += std::string(", ") + name(*e.what.reduction);
  return text + ")";
}

std::string process(const recorded_rank& r, bool failed) {
  switch (r.process) {
    case process_state::stopped:
      return "; its process " + std::to_string(r.flight.pid) + " is stopped";
    case process_state::gone:
      return failed || r.flight.left != 0
                 ? ""
                 : "; its process " + std::to_string(r.flight.pid) + " has ended without leaving the world";
    case process_state::unknown:
    case process_state::runs:
      break;
  }
  return "";
}

/// Returns the rest of a sentence that begins with the name of a rank: the call that it is in.
std::string does(const recorded_world& w, const verdict& v, const position& p) {
  const recorded_rank* const r = w.find(p.rank);
  if (!r) return " left no recording: it was not started with this folder, or died before it joined";
  const watch::flight& f = r->flight;
  if (p.waits)
    return (v.failed ? " was in " : " has waited in ") + call(f, *p.at) + details(*p.at) + " for " + time(p.since) +
           process(*r, v.failed);
  std::string text;
  if (f.left != 0)
    text = " has left the world";
  else
    text = v.failed ? " was in no call" : " has been in no call";
  if (!p.at) return text + ", and has made none" + process(*r, v.failed);
  return text + (f.left != 0 || v.failed ? "" : " for " + time(p.since)) + "; its last one, " + call(f, *p.at) +
         ", has ended" + process(*r, v.failed);
}

std::string headline(const verdict& v) {
  const std::string who = v.culprits.empty() ? "" : ranks(v.culprits);
  const bool several = v.culprits.size() > 1;
  switch (v.what) {
    case finding::nothing:
      return v.failed ? "The world has failed (" + category().message(static_cast<int>(v.failure)) +
                            "), and no operation was in flight."
                      : "Nothing is stuck.";
    case finding::missing:
      return who + (v.failed ? " kept the others waiting, until the world failed (" +
                                   category().message(static_cast<int>(v.failure)) + ")."
                             : std::string(several ? " keep" : " keeps") + " the others waiting.");
    case finding::mismatch:
      return (who.empty() ? std::string("The ranks are in different calls")
                          : who + (several ? " have" : " has") + " called something else than the others") +
             (v.failed ? ", so the world has failed." : ".");
    case finding::together:
      return "All ranks are in the same call: either it takes long, or bytes do not arrive.";
    case finding::lost:
      return who + (v.failure == errc::aborted     ? " has aborted the world."
                    : v.failure == errc::peer_left ? " has left the world while it was still needed."
                                                   : " died, or lost its connection.");
  }
  return "";
}

}  // namespace

std::string in_words(const recorded_world& w, const verdict& v) {
  std::string text = headline(v) + "\n";
  text.front() = static_cast<char>(text.front() == 'r' ? 'R' : text.front());
  // Ranks that do the same share a line; the culprits come first.
  std::map<std::string, std::vector<const position*>> doing;
  std::vector<std::string> order;
  const auto add = [&](const position& p) {
    std::string key = "alone " + std::to_string(p.rank);
    if (const recorded_rank* r = w.find(p.rank); r && p.waits && process(*r, v.failed).empty())
      key = call(r->flight, *p.at) + details(*p.at);
    if (!doing.contains(key)) order.push_back(key);
    doing[key].push_back(&p);
  };
  const auto is_culprit = [&](const position& p) { return std::ranges::find(v.culprits, p.rank) != v.culprits.end(); };
  if (v.what != finding::nothing) {
    for (const position& p : v.positions)
      if (is_culprit(p)) add(p);
    for (const position& p : v.positions)
      if (!is_culprit(p)) add(p);
  }
  for (const std::string& key : order) {
    const auto& those = doing[key];
    const position* const longest = *std::ranges::max_element(those, {}, [](const position* p) { return p->since; });
    std::vector<int> numbers;
    for (const position* p : those) numbers.push_back(p->rank);
    std::string rest = does(w, v, *longest);
    if (numbers.size() > 1 && rest.starts_with(" has")) rest.replace(0, 4, " have");
    if (numbers.size() > 1 && rest.starts_with(" was")) rest.replace(0, 4, " were");
    text += "  " + ranks(numbers) + rest + "\n";
  }
  if (v.late_rank >= 0) {
    char share[160];
    std::snprintf(share, sizeof share, "Rank %d is the last in %.0f %% of %zu collectives, by %.1f ms on average.\n",
                  v.late_rank, v.late_share * 100, v.compared, v.late_seconds * 1e3);
    text += share;
  }
  if (w.others != 0)
    text += "(" + std::to_string(w.others) + " recordings of other worlds in this folder are left out.)\n";
  for (const std::string& file : w.unreadable) text += "(" + file + " is no recording of this version.)\n";
  return text;
}

std::string in_json(const recorded_world& w, const verdict& v) {
  static constexpr const char* names[] = {"nothing", "missing", "mismatch", "together", "lost"};
  auto all = nlohmann::ordered_json::array();
  for (const position& p : v.positions) {
    const recorded_rank* const r = w.find(p.rank);
    nlohmann::ordered_json one{{"rank", p.rank}, {"recorded", p.recorded}, {"waits", p.waits}, {"seconds", nullptr}};
    if (p.since >= 0) one["seconds"] = static_cast<double>(p.since) / 1e9;
    one["call"] = r && p.at ? call(r->flight, *p.at) : "";
    one["stopped"] = r && r->process == process_state::stopped;
    all.push_back(std::move(one));
  }
  const nlohmann::ordered_json out{{"verdict", names[static_cast<std::size_t>(v.what)]},
                                   {"culprits", v.culprits},
                                   {"failed", v.failed},
                                   {"failure", v.failed ? category().message(static_cast<int>(v.failure)) : ""},
                                   {"ranks", all},
                                   {"late_rank", v.late_rank},
                                   {"late_share", v.late_share},
                                   {"late_seconds", v.late_seconds},
                                   {"compared", v.compared},
                                   {"skew", in_json(skew_of(w))},
                                   {"text", in_words(w, v)}};
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::flight_tool
