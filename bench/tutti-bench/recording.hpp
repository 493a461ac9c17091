#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction/ops.hpp>

namespace bench {

/// One call of a flight recording. Times are nanoseconds since 1970; one that ended inside the function that issued it
/// has ended when it was issued.
struct recorded_call {
  std::uint64_t id = 0;  ///< ascends with the order of issue
  std::string name;
  std::size_t count = 0, element_bytes = 1;
  tutti::dtype type = tutti::dtype::u8;
  tutti::algorithm via = tutti::algorithm::automatic;
  std::optional<tutti::reduction_kind> reduction = {};
  int other = -1;  ///< root or peer, numbered in the group
  std::uint32_t tag = 0;
  int context = 0;             ///< of the group; 0: the world
  std::uint64_t sequence = 0;  ///< number in its group; messages are counted apart
  std::int64_t issued = 0, ended = 0;
  bool completed = false;

  [[nodiscard]] bool is_message() const { return name == "send" || name == "recv" || name == "recv_any"; }
  [[nodiscard]] std::size_t bytes() const { return count * element_bytes; }
};

/// The calls of one rank, in the order of issue.
struct recording {
  int rank = 0, size = 1;
  unsigned number = 1;                     ///< of the world, among those of its process
  std::string world;                       ///< equal on all ranks of a world, and on no others
  bool from_start = false;                 ///< no call was overwritten
  std::map<int, std::vector<int>> groups;  ///< world ranks, by context; empty: not recorded
  std::vector<recorded_call> calls;
};

namespace detail {

inline tutti::dtype dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < tutti::dtype_count; ++i)
    if (tutti::name(static_cast<tutti::dtype>(i)) == name) return static_cast<tutti::dtype>(i);
  throw std::runtime_error("the type '" + std::string(name) + "' is not known");
}
inline std::optional<tutti::reduction_kind> reduction_named(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (std::uint8_t i = 0; tutti::name(static_cast<tutti::reduction_kind>(i)) != std::string_view{"unknown"}; ++i)
    if (tutti::name(static_cast<tutti::reduction_kind>(i)) == name) return static_cast<tutti::reduction_kind>(i);
  throw std::runtime_error("the reduction '" + std::string(name) + "' is not known");
}

inline recorded_call call_of(const nlohmann::json& entry) {
  const nlohmann::json& own = entry.at("tutti");
  recorded_call c;
  c.id = entry.at("record_id");
  c.name = own.at("call");
  c.count = own.at("count");
  c.type = dtype_named(own.at("dtype").get<std::string>());
  const std::size_t known = tutti::size_of(c.type), bytes = own.at("bytes");
  c.element_bytes = known != 0 ? known : c.count != 0 ? bytes / c.count : 1;
  c.via = tutti::algorithm_of(own.at("algorithm").get<std::string>());
  c.reduction = reduction_named(own.at("reduction").get<std::string>());
  c.other = own.at(own.contains("peer") ? "peer" : "root");
  c.tag = own.at("tag");
  c.context = entry.at("pg_id");
  c.sequence = entry.at(c.is_message() ? "p2p_seq_id" : "collective_seq_id");
  c.issued = entry.at("time_created_ns");
  c.completed = entry.at("state") == "completed";
  c.ended = own.at("ended_ns").is_null() ? 0 : own.at("ended_ns").get<std::int64_t>();
  return c;
}

}  // namespace detail

/// Returns the recording in a text that watch::json_of() has written. Throws std::exception.
inline recording recording_of(const std::string& text) {
  const auto all = nlohmann::json::parse(text);
  const auto& own = all.at("tutti");
  recording r;
  r.rank = own.at("rank");
  r.size = own.at("world_size");
  r.number = own.at("world_number");
  r.world = own.at("world");
  for (const auto& [context, group] : all.at("pg_config").items())
    for (const auto& rank : nlohmann::json::parse(group.at("ranks").get<std::string>()))
      r.groups[std::stoi(context)].push_back(rank);
  for (const auto& entry : all.at("entries")) r.calls.push_back(detail::call_of(entry));
  r.from_start = all.at("entries").empty() || all.at("entries").at(0).at("record_id") == 1;
  return r;
}

/// Returns the recordings of all ranks of a world, from the files rank_<rank>.json of a folder: of its newest world, or
/// of that to which `path`, one of the files, belongs. Throws std::runtime_error that names the file at fault.
inline std::vector<recording> recordings_in(const std::string& path) {
  namespace fs = std::filesystem;
  const auto fail = [&](const std::string& why) { throw std::runtime_error("--replay " + path + ": " + why); };
  const bool is_folder = fs::is_directory(path);
  if (!is_folder && !fs::exists(path)) fail("there is no such file or folder");
  const fs::path folder = is_folder ? fs::path(path) : fs::absolute(path).parent_path();
  struct found_world {
    unsigned number = 0;  // its processes may have joined different numbers of worlds: the greatest one
    std::map<int, recording> ranks;
  };
  std::map<std::string, found_world> worlds;
  std::string world;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const bool chosen = !is_folder && fs::equivalent(entry.path(), path);
    if (!chosen && (!name.starts_with("rank_") || !name.ends_with(".json"))) continue;
    std::ifstream file{entry.path()};
    try {
      recording r = recording_of({std::istreambuf_iterator<char>{file}, {}});
      if (chosen) world = r.world;
      found_world& its = worlds[r.world];
      its.number = (std::max)(its.number, r.number);
      its.ranks.insert_or_assign(r.rank, std::move(r));
    } catch (const std::exception& e) {
      fail(entry.path().string() + " is no recording: " + e.what());
    }
  }
  if (worlds.empty())
    fail("there is no rank_<rank>.json in it; tutti-flight --dump " + folder.string() + " makes them of rank_*.ring");
  const auto fail_for_jobs = [&](int rank) {
    fail("the files of rank " + std::to_string(rank) + " and of others are of different jobs");
  };
  if (is_folder) {
    const auto newest = std::ranges::max_element(worlds, {}, [](const auto& w) { return w.second.number; });
    world = newest->first;
    for (const auto& [other, its] : worlds)
      if (other != world && its.number == newest->second.number) fail_for_jobs(its.ranks.begin()->first);
  }
  std::map<int, recording>& ranks = worlds.at(world).ranks;
  const int size = ranks.begin()->second.size;
  std::vector<recording> all;
  for (int r = 0; r < size; ++r) {
    const auto at = ranks.find(r);
    if (at != ranks.end()) {
      all.push_back(std::move(at->second));
      continue;
    }
    for (const auto& [other, its] : worlds)
      if (its.ranks.contains(r)) fail_for_jobs(r);
    fail("the recording of rank " + std::to_string(r) + " of " + std::to_string(size) + " is missing");
  }
  return all;
}

}  // namespace bench
