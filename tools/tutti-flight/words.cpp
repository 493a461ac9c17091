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

std::string ranks_in_words(const std::vector<int>& all) {
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

std::string time_in_words(std::int64_t nanoseconds) {
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

namespace {
std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }
}  // namespace

std::string call_in_words(const watch::flight& f, const watch::flight::entry& e) {
  std::string text = "#" + std::to_string(e.what.sequence) + " " + e.what.call.name();
  if (e.what.context != 0 && !e.what.call.is_message()) text += " of split " + std::to_string(e.what.context);
  if (e.what.call.is_message() && e.what.other >= 0)
    text += (e.what.call.number == watch::call_kind::of("send").number ? " to rank " : " from rank ") +
            std::to_string(f.other_of(e.what));
  if (e.what.site != 0 && e.what.site < f.sites.size())
    text += " " + base_name(f.sites[e.what.site].file) + ":" + std::to_string(f.sites[e.what.site].line);
  return text;
}

std::string details_in_words(const watch::flight::entry& e) {
  if (e.what.count == 0) return "";
  std::string text = " (" + std::to_string(e.what.count) + " x " + std::string(name(e.what.type));
  if (e.what.bucket() >= 0) text += ", gradient bucket " + std::to_string(e.what.bucket());
  if (e.what.reduction) text += std::string(", ") + name(*e.what.reduction);
  return text + ")";
}

std::string_view state_of(const recorded_world& w, const verdict& v, const position& p) {
  const recorded_rank* const r = w.find(p.rank);
  if (!r) return w.missing == absence::elsewhere ? "not here" : "not recorded";
  if (r->flight.left != 0) return "left";
  if (r->process == process_state::stopped) return "stopped";
  if (r->process == process_state::gone) return "gone";
  if (r->flight.failed != 0) return "failed";
  return p.waits && !v.failed ? "in call" : "own code";
}

namespace {

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
  if (!r && w.missing == absence::elsewhere) return " is not known here: it runs on another machine, or has ended";
  if (!r) return " left no recording: it was not started with this folder, or died before it joined";
  const watch::flight& f = r->flight;
  if (p.waits) {
    const std::string call = call_in_words(f, *p.at) + details_in_words(*p.at);
    if (!v.failed && r->process == process_state::gone) return " was in " + call + process(*r, v.failed);
    return (v.failed ? " was in " : " has waited in ") + call + " for " + time_in_words(p.since) +
           process(*r, v.failed);
  }
  std::string text;
  if (f.left != 0)
    text = " has left the world";
  else
    text = v.failed ? " was in no call" : " has been in no call";
  if (!p.at) return text + ", and has made none" + process(*r, v.failed);
  return text + (f.left != 0 || v.failed ? "" : " for " + time_in_words(p.since)) + "; its last one, " +
         call_in_words(f, *p.at) + ", has ended" + process(*r, v.failed);
}

}  // namespace

namespace {

/// Returns the ranks that wait for a message whose sender is not known.
std::string receivers_in_words(const verdict& v) {
  std::vector<int> those;
  bool from_any = true;
  for (const position& p : v.positions)
    if (p.waits && p.at->what.call.is_message() && p.waits_for.empty()) {
      those.push_back(p.rank);
      from_any = from_any && p.at->what.other < 0;
    }
  return ranks_in_words(those) +
         (v.failed ? (those.size() > 1 ? " were waiting" : " was waiting") : (those.size() > 1 ? " wait" : " waits")) +
         " for a message of " + (from_any ? "any rank" : "a rank that is not recorded") +
         (v.failed ? " when the world failed (" + category().message(static_cast<int>(v.failure)) + ")." : ".");
}

std::string first_line(const verdict& v) {
  const std::string who = v.suspected.empty() ? "" : ranks_in_words(v.suspected);
  const bool several = v.suspected.size() > 1;
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
    case finding::elsewhere:
      return "The ranks of this machine wait for " + who + ", of which nothing is known here.";
    case finding::message:
      return receivers_in_words(v);
    case finding::lost:
      return who + (v.failure == errc::aborted     ? " has aborted the world."
                    : v.failure == errc::peer_left ? " has left the world while it was still needed."
                                                   : " died, or lost its connection.");
  }
  return "";
}

}  // namespace

std::string headline(const verdict& v) {
  std::string text = first_line(v);
  if (text.front() == 'r') text.front() = 'R';
  return text;
}

std::string in_words(const recorded_world& w, const verdict& v) {
  std::string text = headline(v) + "\n";
  // Ranks that do the same share a line; the suspected ones come first.
  std::map<std::string, std::vector<const position*>> doing;
  std::vector<std::string> order;
  const auto add = [&](const position& p) {
    std::string key = "alone " + std::to_string(p.rank);
    if (const recorded_rank* r = w.find(p.rank); r && p.waits && process(*r, v.failed).empty())
      key = call_in_words(r->flight, *p.at) + details_in_words(*p.at);
    if (!doing.contains(key)) order.push_back(key);
    doing[key].push_back(&p);
  };
  const auto is_suspected = [&](const position& p) {
    return std::ranges::find(v.suspected, p.rank) != v.suspected.end();
  };
  if (v.what != finding::nothing) {
    for (const position& p : v.positions)
      if (is_suspected(p)) add(p);
    for (const position& p : v.positions)
      if (!is_suspected(p)) add(p);
  }
  for (const std::string& key : order) {
    const auto& those = doing[key];
    const position* const longest = *std::ranges::max_element(those, {}, [](const position* p) { return p->since; });
    std::vector<int> numbers;
    for (const position* p : those) numbers.push_back(p->rank);
    std::string rest = does(w, v, *longest);
    if (numbers.size() > 1 && rest.starts_with(" has")) rest.replace(0, 4, " have");
    if (numbers.size() > 1 && rest.starts_with(" is not")) rest.replace(0, rest.find(':'), " are not known here");
    if (numbers.size() > 1 && rest.starts_with(" was")) rest.replace(0, 4, " were");
    text += "  " + ranks_in_words(numbers) + rest + "\n";
  }
  text += sentence(v.arrival.collectives, "collectives");
  if (w.others != 0) text += "(" + std::to_string(w.others) + " recordings of other worlds are left out.)\n";
  for (const std::string& sentence : w.refused) text += "(" + sentence + ".)\n";
  return text;
}

namespace {

/// The last calls of a rank, the oldest first.
nlohmann::ordered_json last_calls(const watch::flight& f) {
  constexpr std::size_t most = 8;
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = f.entries.size() - (std::min)(most, f.entries.size()); i < f.entries.size(); ++i) {
    const watch::flight::entry& e = f.entries[i];
    nlohmann::ordered_json one{{"call", call_in_words(f, e) + details_in_words(e)}, {"issued", e.issued}};
    one["ended"] = e.ended != 0 ? nlohmann::ordered_json(e.ended) : nullptr;
    if (e.what.state == watch::progress::failed) one["error"] = category().message(static_cast<int>(e.what.result));
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

std::string in_json(const recorded_world& w, const verdict& v) {
  static constexpr const char* names[] = {"nothing", "missing", "mismatch", "together", "elsewhere", "message", "lost"};
  auto all = nlohmann::ordered_json::array();
  for (const position& p : v.positions) {
    const recorded_rank* const r = w.find(p.rank);
    nlohmann::ordered_json one{{"rank", p.rank}, {"recorded", p.recorded}, {"waits", p.waits}, {"seconds", nullptr}};
    if (p.since >= 0) one["seconds"] = static_cast<double>(p.since) / 1e9;
    one["call"] = r && p.at ? call_in_words(r->flight, *p.at) : "";
    one["stopped"] = r && r->process == process_state::stopped;
    one["state"] = state_of(w, v, p);
    one["waits_for"] = p.waits_for;
    one["host"] = r ? r->flight.host : "";
    one["pid"] = r ? r->flight.pid : 0;
    if (v.arrival.collectives.is_enough()) {
      const arrivals& own = v.arrival.collectives.ranks.at(static_cast<std::size_t>(p.rank));
      one["last_in"] = own.last;
      one["last_by_seconds"] = own.seconds;
    }
    one["calls"] = r ? last_calls(r->flight) : nlohmann::ordered_json::array();
    all.push_back(std::move(one));
  }
  const nlohmann::ordered_json out{{"verdict", names[static_cast<std::size_t>(v.what)]},
                                   {"suspected", v.suspected},
                                   {"failed", v.failed},
                                   {"failure", v.failed ? category().message(static_cast<int>(v.failure)) : ""},
                                   {"ranks", all},
                                   {"late_rank", v.arrival.collectives.late_rank},
                                   {"late_share", v.arrival.collectives.late_share},
                                   {"late_seconds", v.arrival.collectives.late_seconds},
                                   {"compared", v.arrival.collectives.compared},
                                   {"skew", in_json(v.arrival)},
                                   {"text", in_words(w, v)}};
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::flight_tool
