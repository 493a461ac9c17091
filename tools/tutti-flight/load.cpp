#include "tutti-flight/load.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <tutti/os/process.hpp>
#include <tutti/os/ticks.hpp>

namespace tutti::flight_tool {
namespace {

using watch::flight;

process_state state_of(const flight& f) {
  if (f.pid == 0 || f.boot != watch::kernel_and_pids()) return process_state::unknown;
  const auto s = os::detail::read_process_stat(f.pid);
  return s.state == 0 || s.start_time != f.start_time ? process_state::gone : process_state_of(s.state);
}

}  // namespace

process_state process_state_of(char state) {
  if (os::detail::has_ended(state)) return process_state::gone;
  return os::detail::is_stopped(state) ? process_state::stopped : process_state::runs;
}

std::string add_rank(recorded_world& to, recorded_rank rank) {
  const flight& f = rank.flight;
  if (to.ranks.empty()) to.size = f.size;
  if (f.size != to.size)
    return "is of a world of " + std::to_string(f.size) + " ranks, and others of the same world are of " +
           std::to_string(to.size);
  if (to.find(f.rank)) return "is a second recording of rank " + std::to_string(f.rank);
  to.ranks.push_back(std::move(rank));
  return "";
}

std::vector<recorded_world> load(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code why;
  std::map<std::uint64_t, recorded_world> worlds;
  std::vector<std::string> refused;
  std::size_t found = 0;
  std::set<fs::path> files;  // in an order that does not depend on the file system
  for (fs::directory_iterator at{folder, why}, end; !why && at != end; at.increment(why))
    if (at->path().extension() == ".ring") files.insert(at->path());
  if (why) throw no_recording{"cannot read " + folder + ": " + why.message()};
  for (const fs::path& file : files) {
    const auto ring = watch::read_recording(file.string());
    if (!ring) {
      refused.push_back(file.filename().string() + " is no recording of this version");
      continue;
    }
    const bool here = watch::text_of(ring->head.boot) == watch::kernel_and_pids();
    recorded_rank r;
    r.flight = watch::copy_of(*ring, os::read_clocks(), here);
    r.process = state_of(r.flight);
    recorded_world& world = worlds[r.flight.world];
    const std::string reason = add_rank(world, std::move(r));
    if (reason.empty())
      ++found;
    else
      refused.push_back(file.filename().string() + " " + reason);
  }
  if (found == 0)
    throw no_recording{folder + " holds no recording (rank_<rank>.ring" +
                       (refused.empty() ? "" : "; " + refused.front()) +
                       "): run the job with TUTTI_FLIGHT_DIR=" + folder + " in the environment of all ranks"};
  const auto begin_of = [](const recorded_world& w) {
    return std::ranges::max(w.ranks, {}, [](const recorded_rank& r) { return r.flight.joined; }).flight.joined;
  };
  const auto processes_of = [](const recorded_world& w) {
    std::set<std::tuple<std::string, std::int32_t, std::uint64_t>> all;
    for (const recorded_rank& r : w.ranks) all.emplace(r.flight.boot, r.flight.pid, r.flight.start_time);
    return all;
  };
  const auto newest = std::ranges::max_element(worlds, {}, [&](const auto& world) { return begin_of(world.second); });
  const auto of_job = processes_of(newest->second);
  std::vector<recorded_world> result;
  for (auto& [world, w] : worlds) {
    if (std::ranges::none_of(processes_of(w), [&](const auto& process) { return of_job.contains(process); })) continue;
    w.others = found - w.ranks.size();
    w.refused = refused;
    w.now = os::read_clocks().wall;
    std::ranges::sort(w.ranks, {}, [](const recorded_rank& r) { return r.flight.rank; });
    result.push_back(std::move(w));
  }
  return result;
}

}  // namespace tutti::flight_tool
