#include "tutti-flight/trace.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/os/atomic_file.hpp>

namespace tutti::flight_tool {
namespace {

/// An event of a file that the library has written, one a line.
struct event {
  std::string line;  // without the comma behind it
  double at = 0, lasts = 0;
  int rank = 0;
  std::string thread;
  bool has_time = false;
};

struct one_trace {
  int rank = 0;
  std::string boot;
  std::int64_t base = 0;
  std::vector<event> events;
  std::map<std::uint64_t, std::size_t> collectives;  // of the world, by number
  std::map<std::uint64_t, std::size_t> meetings;     // those that all ranks leave at about the same time
};

std::string_view field(std::string_view line, std::string_view key) {
  const std::string wanted = "\"" + std::string(key) + "\":";
  const auto at = line.find(wanted);
  if (at == std::string_view::npos) return {};
  std::string_view rest = line.substr(at + wanted.size());
  if (rest.starts_with('"')) {
    rest.remove_prefix(1);
    return rest.substr(0, rest.find('"'));
  }
  return rest.substr(0, rest.find_first_of(",}"));
}
template <class Number>
Number number(std::string_view text) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

one_trace read(const std::filesystem::path& path) {
  std::ifstream file{path};
  one_trace t;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with(',')) line.pop_back();
    if (!line.starts_with('{') || !line.ends_with('}')) continue;  // brackets, or cut off by a kill
    event e;
    e.rank = number<int>(field(line, "pid"));
    if (field(line, "name") == "process_name") {
      t.rank = e.rank;
      t.base = number<std::int64_t>(field(line, "base_ns"));
      t.boot = field(line, "boot");
    }
    if (const auto ts = field(line, "ts"); !ts.empty()) {
      e.has_time = true;
      e.at = number<double>(ts);
      e.lasts = number<double>(field(line, "dur"));
      e.thread = field(line, "tid");
      if (field(line, "cat") == "collective" && field(line, "group") == "0") {
        const auto sequence = number<std::uint64_t>(field(line, "sequence"));
        t.collectives[sequence] = t.events.size();
        if (const auto call = field(line, "name"); call == "all_reduce" || call == "barrier")
          t.meetings[sequence] = t.events.size();
      }
    }
    e.line = std::move(line);
    t.events.push_back(std::move(e));
  }
  return t;
}

/// Microseconds by which the clock of a rank's machine is ahead of that of the reference.
double ahead(const one_trace& t, const one_trace& reference) {
  if (t.boot == reference.boot) return 0;
  std::vector<double> differences;
  for (const auto& [sequence, i] : t.meetings)
    if (const auto other = reference.meetings.find(sequence); other != reference.meetings.end()) {
      const event &a = t.events[i], &b = reference.events[other->second];
      differences.push_back(a.at + a.lasts - b.at - b.lasts);
    }
  if (differences.empty()) return 0;
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  std::ranges::nth_element(differences, middle);
  return *middle;
}

std::string microseconds(double t) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", t);
  return text;
}

std::string arrow(const char* phase, std::size_t id, const event& e, double at) {
  return R"({"ts":)" + microseconds(at) + R"(,"ph":")" + phase + R"(","id":)" + std::to_string(id) + R"(,"pid":)" +
         std::to_string(e.rank) + R"(,"tid":)" + e.thread + R"(,"cat":"late","name":"the last one")" +
         (*phase == 'f' ? R"(,"bp":"e"})" : "}");
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
  std::ranges::sort(all, {}, &one_trace::rank);

  // Times of one base, by the clock of the first rank.
  for (one_trace& t : all)
    for (event& e : t.events) e.at += static_cast<double>(t.base - all.front().base) / 1e3;
  for (one_trace& t : all) {
    const double offset = ahead(t, all.front());
    for (event& e : t.events) e.at -= offset;
  }

  merged_trace made;
  made.path = (fs::path(folder) / "trace.json").string();
  made.ranks = all.size();
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const auto add = [&](const std::string& line) { text += (made.events++ == 0 ? "\n" : ",\n") + line; };
  for (const one_trace& t : all)
    for (const event& e : t.events) {
      if (!e.has_time) {
        add(e.line);
        continue;
      }
      const auto rest = e.line.find(",\"dur\":");  // "ts" is the first key
      add(R"({"ts":)" + microseconds(e.at) + e.line.substr(rest));
    }
  constexpr double worth_showing = 100;  // microseconds
  for (const auto& [sequence, first] : all.front().collectives) {
    std::vector<const event*> those;
    for (const one_trace& t : all)
      if (const auto at = t.collectives.find(sequence); at != t.collectives.end())
        those.push_back(&t.events[at->second]);
    if (those.size() != all.size() || those.size() < 2) continue;
    std::ranges::sort(those, {}, &event::at);
    const event& last = *those.back();
    if (last.at - those[those.size() - 2]->at < worth_showing) continue;
    ++made.arrows;
    for (std::size_t i = 0; i + 1 < those.size(); ++i) {
      const std::size_t id = made.arrows * all.size() + i;
      add(arrow("s", id, last, last.at));
      add(arrow("f", id, *those[i], (std::max)(those[i]->at + those[i]->lasts, last.at)));
    }
  }
  text += "\n]}\n";
  os::atomic_file file{made.path};
  file.write(std::as_bytes(std::span{text}));
  file.commit_to_processes();
  return made;
}

}  // namespace tutti::flight_tool
