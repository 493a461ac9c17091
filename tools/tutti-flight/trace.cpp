#include "tutti-flight/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tutti/os/atomic_file.hpp>
#include <utility>
#include <vector>

#include "tutti-flight/skew.hpp"

namespace tutti::flight_tool {
namespace {

using nlohmann::json;

struct one_trace {
  int rank = 0;
  std::size_t size = 0;
  std::string world, boot;
  std::int64_t base = 0, end = 0;  // nanoseconds since 1970; of the last event
  std::vector<json> events;
  std::map<std::uint64_t, std::size_t> collectives;  // of the world, by number
  std::map<std::uint64_t, std::size_t> sync_points;  // those that all ranks leave at about the same time
};

double begin_of(const json& e) { return e.at("ts"); }
double end_of(const json& e) { return begin_of(e) + e.value("dur", 0.0); }

/// Takes an event. Throws json::exception or std::logic_error if it has not all that it must have.
void take(one_trace& t, json e) {
  const std::string name = e.at("name");
  const int rank = e.at("pid");
  if (name == "process_name") {
    const json& about = e.at("args");
    t.rank = rank;
    t.size = about.value("world_size", std::size_t{0});
    t.world = about.value("world", "");
    t.boot = about.value("boot", "");
    t.base = std::stoll(about.at("base_ns").get<std::string>());
    t.end = (std::max)(t.end, t.base);
  }
  if (e.contains("ts")) {
    static_cast<void>(e.at("tid").get<std::int64_t>());
    t.end = (std::max)(t.end, t.base + static_cast<std::int64_t>(end_of(e) * 1e3));
  }
  if (e.value("cat", "") == "collective" && e.at("args").at("group") == 0) {
    static_cast<void>(begin_of(e));
    const std::uint64_t sequence = e.at("args").at("sequence");
    t.collectives[sequence] = t.events.size();
    if (name == "all_reduce" || name == "barrier") t.sync_points[sequence] = t.events.size();
  }
  t.events.push_back(std::move(e));
}

/// Reads a file that the library has written, one event a line; the last one may be cut off by a kill.
one_trace read(const std::filesystem::path& path) {
  std::ifstream file{path};
  one_trace t;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.ends_with(',')) line.pop_back();
    json e = json::parse(line, nullptr, false);
    if (!e.is_object()) continue;  // a bracket
    try {
      take(t, std::move(e));
    } catch (const std::exception& why) {
      throw std::runtime_error{path.string() + ", line " + std::to_string(number) +
                               ", is no event of a trace by tutti: " + why.what()};
    }
  }
  return t;
}

/// Microseconds by which the clock of a rank's machine is ahead of that of the reference.
double ahead(const one_trace& t, const one_trace& reference) {
  if (t.boot == reference.boot) return 0;
  std::vector<double> differences;
  for (const auto& [sequence, i] : t.sync_points)
    if (const auto other = reference.sync_points.find(sequence); other != reference.sync_points.end()) {
      differences.push_back(end_of(t.events[i]) - end_of(reference.events[other->second]));
    }
  return differences.empty() ? 0 : median(std::move(differences));
}

json arrow(const char* phase, std::size_t id, const json& e, double at) {
  json a{{"ts", at},      {"ph", phase},           {"id", id}, {"pid", e["pid"]}, {"tid", e["tid"]},
         {"cat", "late"}, {"name", "the last one"}};
  if (*phase == 'f') a["bp"] = "e";
  return a;
}

}  // namespace

std::string in_words(const merged_trace& made) {
  std::string text = made.path + ": " + std::to_string(made.ranks) +
                     (made.size != 0 ? " of " + std::to_string(made.size) : std::string()) + " ranks, " +
                     std::to_string(made.events) + " events; open it with ui.perfetto.dev or chrome://tracing\n";
  if (made.left_out > 0)
    text += "left out: " + std::to_string(made.left_out) + " traces of other worlds in that folder\n";
  return text;
}

merged_trace merge_traces(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<one_trace> all;
  std::error_code why;
  for (fs::directory_iterator at{folder, why}, end; !why && at != end; at.increment(why)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("trace_") || !name.ends_with(".json")) continue;
    all.push_back(read(at->path()));
  }
  if (why) throw std::runtime_error{"cannot read " + folder + ": " + why.message()};
  if (all.empty())
    throw std::runtime_error{folder + " holds no trace (trace_<rank>.json): run the job with TUTTI_TRACE_DIR=" +
                             folder + " in the environment of all ranks"};
  const std::string world = std::ranges::max(all, {}, &one_trace::end).world;
  const std::size_t left_out = std::erase_if(all, [&](const one_trace& t) { return t.world != world; });
  std::ranges::sort(all, {}, &one_trace::rank);

  // Times of one base, by the clock of the first rank.
  const auto move = [](one_trace& t, double by) {
    for (json& e : t.events)
      if (e.contains("ts")) e["ts"] = begin_of(e) + by;
  };
  for (one_trace& t : all) move(t, static_cast<double>(t.base - all.front().base) / 1e3);
  for (one_trace& t : all) move(t, -ahead(t, all.front()));

  merged_trace made;
  made.path = (fs::path(folder) / "trace.json").string();
  made.ranks = all.size();
  made.size = all.front().size;
  made.left_out = left_out;
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const auto add = [&](const json& e) {
    text += (made.events++ == 0 ? "\n" : ",\n") + e.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  for (const one_trace& t : all)
    for (const json& e : t.events) add(e);
  constexpr double worth_showing = 100;  // microseconds
  for (const auto& [sequence, first] : all.front().collectives) {
    std::vector<const json*> those;
    for (const one_trace& t : all)
      if (const auto at = t.collectives.find(sequence); at != t.collectives.end())
        those.push_back(&t.events[at->second]);
    if (those.size() != all.size() || those.size() < 2) continue;
    std::ranges::sort(those, {}, [](const json* e) { return begin_of(*e); });
    const json& last = *those.back();
    if (begin_of(last) - begin_of(*those[those.size() - 2]) < worth_showing) continue;
    ++made.arrows;
    for (std::size_t i = 0; i + 1 < those.size(); ++i) {
      const std::size_t id = made.arrows * all.size() + i;
      add(arrow("s", id, last, begin_of(last)));
      add(arrow("f", id, *those[i], (std::max)(end_of(*those[i]), begin_of(last))));
    }
  }
  text += "\n]}\n";
  os::atomic_file file{made.path};
  file.write(std::as_bytes(std::span{text}));
  file.commit_to_processes();
  return made;
}

}  // namespace tutti::flight_tool
