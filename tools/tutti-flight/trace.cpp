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
  std::filesystem::file_time_type written;
  std::int64_t base = 0;
  std::vector<json> events;
  std::map<std::uint64_t, std::size_t> collectives;  // of the world, by number
  std::map<std::uint64_t, std::size_t> sync_points;  // those that all ranks leave at about the same time
};

double begin_of(const json& e) { return e["ts"]; }
double end_of(const json& e) { return begin_of(e) + e.value("dur", 0.0); }

/// Reads a file that the library has written, one event a line; the last one may be cut off by a kill.
one_trace read(const std::filesystem::path& path) {
  std::ifstream file{path};
  one_trace t;
  t.written = std::filesystem::last_write_time(path);
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with(',')) line.pop_back();
    json e = json::parse(line, nullptr, false);
    if (!e.is_object()) continue;  // a bracket
    if (e["name"] == "process_name") {
      t.rank = e["pid"];
      t.size = e["args"].value("world_size", std::size_t{0});
      t.world = e["args"].value("world", "");
      t.boot = e["args"].value("boot", "");
      t.base = std::stoll(e["args"].value("base_ns", "0"));
    }
    if (e.value("cat", "") == "collective" && e["args"]["group"] == 0) {
      const std::uint64_t sequence = e["args"]["sequence"];
      t.collectives[sequence] = t.events.size();
      if (e["name"] == "all_reduce" || e["name"] == "barrier") t.sync_points[sequence] = t.events.size();
    }
    t.events.push_back(std::move(e));
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

merged_trace merge_traces(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<one_trace> all;
  std::error_code why;
  for (fs::directory_iterator at{folder, why}, end; !why && at != end; at.increment(why)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("trace_") || !name.ends_with(".json") || name.find(".world") != std::string::npos) continue;
    all.push_back(read(at->path()));
  }
  if (why) throw std::runtime_error{"cannot read " + folder + ": " + why.message()};
  if (all.empty())
    throw std::runtime_error{folder + " holds no trace (trace_<rank>.json): run the job with TUTTI_TRACE_DIR=" +
                             folder + " in the environment of all ranks"};
  const std::string world = std::ranges::max(all, {}, &one_trace::written).world;
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
