#include "tutti-run/status/jobs.hpp"

#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <tutti/os/read_file.hpp>

#include "tutti-run/posix.hpp"
#include "tutti-run/status/server.hpp"

namespace tutti::launch {
namespace {

struct found_job {
  running_job job;
  std::set<pid_t> processes;  ///< its ranks, and all processes above them
};

/// Returns the user of a process; nothing if there is no such process.
std::optional<uid_t> user_of(pid_t pid) {
  struct stat status{};
  if (::stat(text("/proc/", pid).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

/// Returns a world of the job of each world: those that have a process in common are of one job, as a rank's worlds on
/// the host and on GPUs. Ranks that a tutti-run has started are not asked for.
std::map<std::uint64_t, std::uint64_t> jobs_of_worlds(const held_ranks& held) {
  std::map<std::uint64_t, std::uint64_t> job;
  std::map<pid_t, std::uint64_t> world_of;
  for (const auto& one : held.recordings) {
    if (one.supervisor != 0) continue;
    const std::uint64_t own = one.memory->head.world;
    job.emplace(own, own);
    const auto [at, is_first] = world_of.emplace(one.pid, own);
    if (is_first || job[at->second] == job[own]) continue;
    const std::uint64_t from = job[own], to = job[at->second];
    for (auto& [world, its] : job)
      if (its == from) its = to;
  }
  return job;
}

std::vector<found_job> find_jobs() {
  const process_table table;
  std::map<pid_t, found_job> launched;        // by supervisor
  std::map<std::uint64_t, found_job> others;  // by one of their worlds
  const auto own = ::geteuid();
  for (const pid_t pid : status_servers())
    // Sockets of all users are listed, and their jobs are not to be counted.
    if (const auto user = user_of(pid); user && (*user == own || own == 0)) {
      auto& one = launched[pid];
      one.job.server = pid;
      const auto above = table.line_of(pid);
      one.processes.insert(above.begin(), above.end());
    }
  held_ranks held = read_ranks(table);
  auto jobs = jobs_of_worlds(held);
  const auto home_of = [&](const std::vector<pid_t>& above, pid_t supervisor, std::uint64_t world) -> found_job& {
    for (const pid_t pid : above)
      if (const auto at = launched.find(pid); at != launched.end() && at->second.job.server != 0) return at->second;
    return supervisor != 0 ? launched[supervisor] : others[jobs[world]];
  };
  for (auto& one : held.recordings) {
    auto& home = home_of(one.line, one.supervisor, one.memory->head.world);
    home.processes.insert(one.line.begin(), one.line.end());
    home.job.ranks.recordings.push_back(std::move(one));
  }
  for (auto& one : held.waiting) {
    auto& home = home_of(one.line, one.supervisor, 0);
    home.processes.insert(one.line.begin(), one.line.end());
    home.job.ranks.waiting.push_back(std::move(one));
  }
  std::vector<found_job> result;
  for (auto& [supervisor, one] : launched) {
    const auto above = table.line_of(supervisor);
    one.job.process = above.size() > 1 ? above[1] : supervisor;  // the one that users know
    result.push_back(std::move(one));
  }
  for (auto& [world, one] : others) {
    // Of a rank that is gone, a child may be left.
    const auto lowest =
        std::ranges::min_element(one.job.ranks.recordings, {}, [](const auto& r) { return r.memory->head.rank; });
    one.job.process = lowest->line.empty() ? lowest->pid : lowest->line.front();
    result.push_back(std::move(one));
  }
  return result;
}

std::string command_of(pid_t pid) {
  constexpr std::size_t most = 60;
  std::string words = os::read_file(text("/proc/", pid, "/cmdline")).value_or("");
  while (words.ends_with('\0')) words.pop_back();
  // A command is of its user's making, and root looks at jobs of all.
  std::ranges::replace_if(words, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  return words.size() > most ? words.substr(0, most) + "..." : words;
}

[[noreturn]] void refuse(const std::string& why) { throw failure(2, why); }

[[noreturn]] void refuse_process(pid_t process) {
  const auto uid = user_of(process);
  if (!uid) refuse(text("there is no process ", process));
  if (*uid != ::geteuid() && ::geteuid() != 0) {
    const passwd* const user = ::getpwuid(*uid);
    refuse(text("process ", process, " belongs to another user (", user ? user->pw_name : "unknown", ", uid ", *uid,
                "), whose jobs are not shown to you"));
  }
  refuse(text("process ", process, " neither is, nor has started, a rank that has joined its world"));
}

}  // namespace

running_job find_job(std::optional<pid_t> process) {
  auto all = find_jobs();
  if (process) std::erase_if(all, [&](const found_job& one) { return !one.processes.contains(*process); });
  if (all.size() == 1) return std::move(all.front().job);
  if (all.empty() && process) refuse_process(*process);
  if (all.empty()) refuse("no rank of a job of yours runs on this machine, or none has joined its world yet");
  std::string list = "several jobs run here; name one by one of its processes, as in tutti-run --status " +
                     std::to_string(all.front().job.process) + ":";
  for (const auto& one : all) list += text("\n  ", one.job.process, "  ", command_of(one.job.process));
  refuse(list);
}

}  // namespace tutti::launch
