#include "tutti-flight/load.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include <tutti/os/process.hpp>
#include <tutti/os/ticks.hpp>

namespace tutti::flight_tool {
namespace {

process_state state_of(const watch::flight& f) {
  if (f.pid == 0 || f.boot != watch::kernel_and_pids()) return process_state::unknown;
  const auto s = os::detail::read_process_stat(f.pid);
  if (s.state == 0 || s.state == 'Z' || s.state == 'X' || s.start_time != f.start_time) return process_state::gone;
  return s.state == 'T' || s.state == 't' ? process_state::stopped : process_state::runs;
}

}  // namespace

recorded_world load(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code why;
  std::map<std::uint64_t, recorded_world> worlds;
  std::vector<std::string> unreadable;
  std::map<std::uint64_t, std::int64_t> begun;
  std::size_t found = 0;
  for (fs::directory_iterator at{folder, why}, end; !why && at != end; at.increment(why)) {
    if (at->path().extension() != ".ring") continue;
    const auto ring = watch::read_recording(at->path().string());
    if (!ring) {
      unreadable.push_back(at->path().filename().string());
      continue;
    }
    ++found;
    const bool here = watch::text_of(ring->head.boot) == watch::kernel_and_pids();
    recorded_rank r;
    r.flight = watch::copy_of(*ring, os::read_clocks(), here);
    r.process = state_of(r.flight);
    const std::uint64_t world = r.flight.world;
    begun[world] = (std::max)(begun[world], ring->head.first.read().wall);
    worlds[world].size = r.flight.size;
    worlds[world].ranks.push_back(std::move(r));
  }
  if (why) throw no_recording{"cannot read " + folder + ": " + why.message()};
  if (found == 0)
    throw no_recording{folder + " holds no recording (rank_<rank>.ring" +
                       (unreadable.empty() ? "" : "; " + unreadable.front() + " is none of this version") +
                       "): run the job with TUTTI_FLIGHT_DIR=" + folder + " in the environment of all ranks"};
  const auto newest = std::ranges::max_element(begun, {}, [](const auto& w) { return w.second; })->first;
  recorded_world w = std::move(worlds[newest]);
  w.others = found - w.ranks.size();
  w.unreadable = std::move(unreadable);
  w.now = os::read_clocks().wall;
  std::ranges::sort(w.ranks, {}, [](const recorded_rank& r) { return r.flight.rank; });
  return w;
}

}  // namespace tutti::flight_tool
