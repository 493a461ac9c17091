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

std::vector<found_job> find_jobs() {
  const process_table table;
  std::map<pid_t, found_job> launched;        // by supervisor
  std::map<std::uint64_t, found_job> others;  // by world
  const auto own = ::geteuid();
  for (const pid_t pid : status_servers())
    // Sockets of all users are listed, and their jobs are not to be counted.
    if (const auto user = user_of(pid); user && (*user == own || own == 0)) {
      auto& one = launched[pid];
      one.job.server = pid;
      const auto above = table.line_of(pid);
      one.processes.insert(above.begin(), above.end());
    }
  const auto home_of = [&](const std::vector<pid_t>& above, pid_t supervisor, std::uint64_t world) -> found_job& {
    for (const pid_t pid : above)
      if (const auto at = launched.find(pid); at != launched.end() && at->second.job.server != 0) return at->second;
    return supervisor != 0 ? launched[supervisor] : others[world];
  };
  held_ranks held = read_ranks(table);
  // A process without a tutti-run above it is shown in the last world that it has joined.
  std::map<pid_t, std::uint32_t> last;
  for (const auto& one : held.recordings) last[one.pid] = std::max(last[one.pid], one.memory->head.number);
  for (auto& one : held.recordings) {
    if (one.supervisor == 0 && one.memory->head.number < last[one.pid]) continue;
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
    one.job.process =
        std::ranges::min_element(one.job.ranks.recordings, {}, [](const auto& r) { return r.memory->head.rank; })->pid;
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
