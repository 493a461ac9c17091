#include "tutti-run/status/recordings.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <tutti/os/host.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/watch/flight.hpp>

#include "tutti-run/machines/message.hpp"
#include "tutti-run/posix.hpp"

namespace tutti::launch {
namespace {

using flight_tool::process_state;
using watch::recording;

constexpr std::string_view supervisor_name = "tutti-keeper";
constexpr std::size_t block = sizeof(watch::record);
constexpr std::uint64_t operations_told = 512;
constexpr std::size_t most_environment = std::size_t{1} << 20;

std::string link_of(const std::string& path) {
  std::array<char, 4096> to{};
  const auto length = ::readlink(path.c_str(), to.data(), to.size());
  return {to.data(), length < 0 ? 0 : static_cast<std::size_t>(length)};
}

bool may_be_recording(std::string_view file) {
  constexpr std::string_view deleted = " (deleted)";
  if (file.ends_with(deleted)) file.remove_suffix(deleted.size());
  const std::string_view name = file.substr(file.rfind('/') + 1);
  return file == text("/memfd:", watch::recording_head::memory_name) ||
         (name.starts_with("rank_") && name.ends_with(".ring"));
}

std::optional<int> number_in(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::string_view variable = environment.substr(0, environment.find('\0'));
    if (variable.starts_with(name) && variable.size() > name.size() && variable[name.size()] == '=') {
      int value = 0;
      std::from_chars(variable.data() + name.size() + 1, variable.data() + variable.size(), value);
      return value;
    }
    environment.remove_prefix(std::min(environment.size(), variable.size() + 1));
  }
  return std::nullopt;
}

/// Returns the first of these processes that is the supervisor of a tutti-run; 0 if none is.
pid_t supervisor_in(const std::vector<pid_t>& line) {
  for (const pid_t pid : line)
    if (os::read_file(text("/proc/", pid, "/comm")) == text(supervisor_name, '\n')) return pid;
  return 0;
}

/// Recordings by their files: a child made by fork() holds that of its parent, too.
using by_file = std::map<std::pair<dev_t, ino_t>, held_recording>;

void add_recordings_of(const process_info& process, const process_table& table, by_file& found) {
  const std::string folder = text("/proc/", process.pid, "/fd");
  const auto close = [](DIR* d) { ::closedir(d); };
  const std::unique_ptr<DIR, decltype(close)> all{::opendir(folder.c_str()), close};
  if (!all) return;
  while (const dirent* entry = ::readdir(all.get())) {
    const std::string path = text(folder, '/', entry->d_name);
    if (!may_be_recording(link_of(path))) continue;
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) continue;
    auto memory = watch::read_recording(path);
    if (!memory) continue;
    const auto key = std::pair{status.st_dev, status.st_ino};
    const auto& head = memory->head;
    // A child may have begun within the same tick. In another namespace, its rank has another number.
    static const std::string here = watch::kernel_and_pids();
    const bool own =
        head.start_time == process.started_at && (head.pid == process.pid || watch::text_of(head.boot) != here);
    if (found.contains(key) && !own) continue;
    held_recording one{nullptr, os::read_clocks(), process.pid, flight_tool::process_state_of(process.state), {}, 0};
    one.line = table.line_of(process.pid);
    if (!own && head.start_time != 0) {  // only a child of the rank is left
      one.pid = head.pid;
      one.process = process_state::gone;
    }
    one.memory = std::move(memory);
    found[key] = std::move(one);
  }
}

}  // namespace

held_ranks read_ranks(const process_table& table) {
  by_file found;
  for (const auto& [pid, process] : table.all()) add_recordings_of(process, table, found);
  held_ranks result;
  std::set<pid_t> joined;
  for (auto& [file, one] : found) {
    one.supervisor = supervisor_in(one.line);
    joined.insert(one.line.begin(), one.line.end());
    result.recordings.push_back(std::move(one));
  }
  for (const auto& [pid, process] : table.all()) {
    if (joined.contains(pid) || supervisor_in({process.parent}) == 0) continue;
    const std::string environment = os::read_file(text("/proc/", pid, "/environ"), most_environment).value_or("");
    const auto rank = number_in(environment, "RANK"), size = number_in(environment, "WORLD_SIZE");
    if (!rank || !size || !number_in(environment, "TUTTI_REPORT_FD") || *rank < 0 || *rank >= *size) continue;
    result.waiting.push_back({*rank, *size, pid, flight_tool::process_state_of(process.state), os::hostname(),
                              table.line_of(pid), process.parent});
  }
  std::ranges::sort(result.waiting, {}, &waiting_rank::rank);
  return result;
}

std::string encode(const held_ranks& all) {
  message_writer out;
  out.number(static_cast<std::int64_t>(all.recordings.size())).number(static_cast<std::int64_t>(all.waiting.size()));
  for (const auto& one : all.recordings) {
    std::uint64_t newest = 0;
    for (const auto& r : one.memory->records) newest = std::max(newest, r.id());
    // All that is neither empty nor old, in blocks of the size of a record.
    const auto bytes = std::as_bytes(std::span{one.memory.get(), 1});
    const std::size_t records = (bytes.size() - sizeof one.memory->records) / block;
    std::string blocks;
    for (std::size_t i = 0; i < bytes.size() / block; ++i) {
      const auto part = bytes.subspan(i * block, block);
      if (std::ranges::all_of(part, [](std::byte b) { return b == std::byte{0}; })) continue;
      if (i >= records) {
        const auto& r = one.memory->records[i - records];
        if (r.id() + operations_told <= newest && !r.is_kept(watch::record::in_flight)) continue;
      }
      blocks += message_writer{}.number(static_cast<std::int64_t>(i)).bytes();
      blocks.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    out.number(static_cast<std::int64_t>(one.read_at.ticks)).number(one.read_at.steady).number(one.read_at.wall);
    out.number(one.pid).number(static_cast<int>(one.process)).text(blocks);
  }
  for (const auto& one : all.waiting)
    out.number(one.rank).number(one.size).number(one.pid).number(static_cast<int>(one.process)).text(one.host);
  return out.bytes();
}

void decode_ranks(std::string_view bytes, held_ranks& into) {
  message_reader in{bytes};
  const auto recordings = in.number(), waiting = in.number();
  for (std::int64_t i = 0; i < recordings; ++i) {
    held_recording one;
    one.memory = std::make_unique<recording>();
    const auto to = std::as_writable_bytes(std::span{one.memory.get(), 1});
    one.read_at.ticks = static_cast<std::uint64_t>(in.number());
    one.read_at.steady = in.number();
    one.read_at.wall = in.number();
    one.pid = in.small();
    one.process = static_cast<process_state>(in.small());
    for (std::string_view blocks = in.text(); !blocks.empty(); blocks.remove_prefix(8 + block)) {
      const auto at = static_cast<std::uint64_t>(message_reader{blocks}.number());
      if (blocks.size() < 8 + block || at >= to.size() / block) throw failure(2, "the status of a rank is malformed");
      std::memcpy(to.data() + at * block, blocks.data() + 8, block);
    }
    if (!one.memory->head.is_recording()) throw failure(2, "the status of a rank is malformed");
    into.recordings.push_back(std::move(one));
  }
  for (std::int64_t i = 0; i < waiting; ++i) {
    waiting_rank one;
    one.rank = in.small();
    one.size = in.small();
    one.pid = in.small();
    one.process = static_cast<process_state>(in.small());
    one.host = in.text();
    into.waiting.push_back(std::move(one));
  }
}

std::vector<flight_tool::recorded_world> worlds_of(const std::vector<held_recording>& all) {
  std::map<std::uint64_t, flight_tool::recorded_world> worlds;
  for (const auto& one : all) {
    flight_tool::recorded_rank rank;
    rank.flight = watch::copy_of(*one.memory, one.read_at, true);
    rank.flight.pid = one.pid;
    rank.process = one.process;
    auto& w = worlds[one.memory->head.world];
    static_cast<void>(flight_tool::add_rank(w, std::move(rank)));
    w.now = std::max(w.now, one.read_at.wall);
  }
  std::vector<flight_tool::recorded_world> result;
  for (auto& [world, w] : worlds) {
    w.missing = flight_tool::absence::elsewhere;
    w.others = all.size() - w.ranks.size();
    std::ranges::sort(w.ranks, {}, [](const flight_tool::recorded_rank& r) { return r.flight.rank; });
    result.push_back(std::move(w));
  }
  return result;
}

}  // namespace tutti::launch
