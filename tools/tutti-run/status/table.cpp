#include "tutti-run/status/table.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti-flight/verdict.hpp"
#include "tutti-run/report.hpp"

namespace tutti::launch {
namespace {

using namespace flight_tool;

constexpr std::chrono::seconds normal_wait{1};

struct row {
  bool matters = false;
  std::vector<std::string> cells;
};

std::string list_of(const std::vector<int>& ranks) {
  const std::string words = ranks_in_words(ranks);
  return ranks.empty() ? "" : words.substr(words.find(' ') + 1);
}

std::string lateness_of(const verdict& v, int rank) {
  const auto& all = v.arrival.collectives;
  if (!all.is_enough()) return "";
  const auto& l = all.ranks.at(static_cast<std::size_t>(rank));
  if (l.last == 0) return "";
  std::array<char, 64> words{};
  std::snprintf(words.data(), words.size(), "%.0f %% by %.1f ms",
                100 * static_cast<double>(l.last) / static_cast<double>(all.compared),
                1e3 * l.seconds / static_cast<double>(l.last));
  return words.data();
}

row row_of(const recorded_world& w, const verdict& v, const position& p) {
  const recorded_rank* const r = w.find(p.rank);
  row one;
  const std::string state{state_of(w, v, p)};
  one.matters = p.rank == v.arrival.collectives.late_rank ||
                std::ranges::find(v.suspected, p.rank) != v.suspected.end() ||
                (r && state != "in call" && state != "own code");
  std::string call;
  if (r && p.at) call = (p.waits ? "" : "after ") + call_in_words(r->flight, *p.at) + details_in_words(*p.at);
  one.cells = {std::to_string(p.rank),
               r ? r->flight.host : "",
               r ? std::to_string(r->flight.pid) : "",
               state,
               call,
               r && p.since >= 0 ? time_in_words(p.since) : "",
               list_of(p.waits_for),
               lateness_of(v, p.rank)};
  return one;
}

std::string_view state_of(const waiting_rank& one, std::string_view running) {
  if (one.process == process_state::stopped) return "stopped";
  return one.process == process_state::gone ? "gone" : running;
}

/// Returns the process of a rank of a world that has no recording; null if none is known.
const waiting_rank* process_of(const machine_ranks& job, const recorded_world& w, int rank) {
  if (w.find(rank)) return nullptr;
  for (const auto& one : job.ranks.waiting)
    if (one.rank == rank && one.size == w.size) return &one;
  return nullptr;
}

std::string heading_of(const machine_ranks& job, const recorded_world& w, const verdict& v) {
  const bool known = std::ranges::all_of(v.suspected, [&](int r) { return process_of(job, w, r) != nullptr; });
  if (v.what != finding::elsewhere || !known) return headline(v) + "\n";
  return "The other ranks wait for " + ranks_in_words(v.suspected) +
         (v.suspected.size() > 1 ? ", whose processes have" : ", whose process has") +
         " no recording that can be read.\n";
}

/// Lines of equally wide columns; those that are empty in all rows are left out.
std::string laid_out(const std::vector<std::string>& head, const std::vector<row>& rows, std::size_t columns) {
  std::vector<std::size_t> widths(head.size());
  for (std::size_t c = 0; c < head.size(); ++c) {
    for (const row& one : rows) widths[c] = std::max(widths[c], one.cells[c].size());
    if (widths[c] != 0) widths[c] = std::max(widths[c], head[c].size());
  }
  std::string all;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (widths[c] == 0) continue;
      line += cells[c] + std::string(widths[c] - cells[c].size() + 2, ' ');
    }
    // Names are of the user's making, and root looks at jobs of all.
    std::ranges::replace_if(line, [](unsigned char c) { return c < ' ' || c == 127; }, '?');
    line = line.substr(0, columns);
    all += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  };
  add(head);
  for (const row& one : rows) add(one.cells);
  return all;
}

/// All rows if they fit, else those that matter and then the first ones.
std::vector<row> fitting(std::vector<row> rows, std::size_t most) {
  if (rows.size() <= most) return rows;
  std::vector<row> shown;
  for (const bool matters : {true, false})
    for (row& one : rows)
      if (one.matters == matters && shown.size() < most) shown.push_back(std::move(one));
  return shown;
}

std::string notes_of(const machine_ranks& job, const recorded_world& w) {
  std::string notes;
  for (const auto& machine : job.silent) notes += machine + " has not answered.\n";
  if (job.silent.empty() && !w.ranks.empty() && w.ranks.size() < static_cast<std::size_t>(w.size))
    notes += "Ranks of other machines are known on the machine of their tutti-run --hosts only.\n";
  if (const auto idle = std::ranges::count_if(
          job.ranks.waiting, [&](const waiting_rank& one) { return process_of(job, w, one.rank) != &one; });
      idle != 0 && !w.ranks.empty())
    notes += text(idle, idle > 1 ? " processes of the job are" : " process of the job is", " in no world.\n");
  if (w.others != 0) notes += text("(", w.others, " recordings of other worlds are left out.)\n");
  return notes;
}

std::size_t lines_in(std::string_view words) { return static_cast<std::size_t>(std::ranges::count(words, '\n')); }

shown_status table_of(const std::string& heading, const std::vector<std::string>& head, std::vector<row> rows,
                      const table_limits& limits) {
  const std::size_t all = rows.size(), taken = lines_in(heading) + 2;  // the head, and a line about what is left out
  rows = fitting(std::move(rows), limits.lines > taken ? limits.lines - taken : 1);
  std::string shown = heading + laid_out(head, rows, limits.columns);
  if (rows.size() < all) shown += text("(", all - rows.size(), " more ranks)\n");
  return {shown, false};
}

}  // namespace

shown_status status_table(const machine_ranks& job, const table_limits& limits) {
  std::vector<row> rows;
  if (job.ranks.recordings.empty()) {
    for (const auto& one : job.ranks.waiting)
      rows.push_back(
          {one.process != process_state::runs,
           {std::to_string(one.rank), one.host, std::to_string(one.pid), std::string(state_of(one, "starting"))}});
    return table_of("No rank is in a world: none has joined yet, or all have left.\n" + notes_of(job, {}),
                    {"rank", "machine", "pid", "state"}, std::move(rows), limits);
  }
  const recorded_world w = choose_world(worlds_of(job.ranks.recordings), normal_wait);
  const verdict v = judge(w, normal_wait);
  for (const position& p : v.positions) {
    rows.push_back(row_of(w, v, p));
    if (const auto* const one = process_of(job, w, p.rank)) {
      auto& cells = rows.back().cells;
      cells[1] = one->host;
      cells[2] = std::to_string(one->pid);
      cells[3] = state_of(*one, "no recording");
      rows.back().matters = true;
    }
  }
  const std::string heading = heading_of(job, w, v) + sentence(v.arrival.collectives, "collectives");
  auto shown =
      table_of(heading + notes_of(job, w), {"rank", "machine", "pid", "state", "call", "for", "waits for", "last in"},
               std::move(rows), limits);
  shown.stuck = v.what != finding::nothing || v.failed;
  return shown;
}

shown_status status_json(const machine_ranks& job) {
  using json = nlohmann::ordered_json;
  json all;
  bool stuck = false;
  if (job.ranks.recordings.empty()) {
    all = {{"verdict", "starting"}, {"suspected", json::array()}, {"ranks", json::array()}};
    for (const auto& one : job.ranks.waiting)
      all["ranks"].push_back({{"rank", one.rank},
                              {"recorded", false},
                              {"stopped", one.process == process_state::stopped},
                              {"state", state_of(one, "starting")},
                              {"host", one.host},
                              {"pid", one.pid}});
  } else {
    const recorded_world w = choose_world(worlds_of(job.ranks.recordings), normal_wait);
    const verdict v = judge(w, normal_wait);
    all = json::parse(in_json(w, v));
    for (json& rank : all["ranks"])
      if (const auto* const one = process_of(job, w, rank["rank"])) {
        rank["host"] = one->host;
        rank["pid"] = one->pid;
        rank["stopped"] = one->process == process_state::stopped;
        rank["state"] = state_of(*one, "no recording");
      }
    stuck = v.what != finding::nothing || v.failed;
  }
  all["silent_machines"] = job.silent;
  return {all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n", stuck};
}

}  // namespace tutti::launch
