#include "tutti-run/ranks/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

namespace tutti::launch {
namespace {

std::optional<process_info> inspect(pid_t pid) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const unique_fd file{::open(path.data(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 1024> line{};
  const auto length = file ? ::read(file.value(), line.data(), line.size() - 1) : -1;
  if (length <= 0) return std::nullopt;
  // The name in parentheses is the program's own choice and may hold anything, even parentheses.
  const auto name_end = std::string_view{line.data(), static_cast<std::size_t>(length)}.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  process_info found;
  found.pid = pid;
  const int read = std::sscanf(line.data() + name_end + 1,
                               " %c %d %d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                               &found.state, &found.parent, &found.group, &found.flags, &found.started_at);
  if (read != 5) return std::nullopt;
  return found;
}

bool is_dead(const process_info& process) noexcept { return process.state == 'Z' || process.state == 'X'; }

}  // namespace

std::vector<process_info> all_processes() {
  std::vector<process_info> found;
  const auto close = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close)> folder{::opendir("/proc"), close};
  if (!folder) return found;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    if (const auto process = inspect(pid)) found.push_back(*process);
  }
  return found;
}

process_table::process_table() {
  for (const auto& one : all_processes()) all_.emplace(one.pid, one);
}

std::vector<pid_t> process_table::line_of(pid_t pid) const {
  std::vector<pid_t> line;
  for (auto at = all_.find(pid); at != all_.end() && line.size() < all_.size(); at = all_.find(at->second.parent))
    line.push_back(at->first);
  return line;
}

std::vector<process_info> descendants(std::span<const pid_t> except) {
  std::unordered_multimap<pid_t, process_info> children;
  for (const auto& process : all_processes()) children.emplace(process.parent, process);
  std::vector<pid_t> queue{::getpid()};
  std::vector<process_info> below;
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const auto [first, last] = children.equal_range(queue[next]);
    for (auto child = first; child != last; ++child) {
      if (std::ranges::find(except, child->second.pid) != except.end()) continue;
      queue.push_back(child->second.pid);
      if (!is_dead(child->second)) below.push_back(child->second);
    }
  }
  return below;
}

bool is_exiting(pid_t pid) noexcept {
  constexpr unsigned exiting = 4;  // PF_EXITING
  const auto process = inspect(pid);
  return !process || is_dead(*process) || (process->flags & exiting) != 0;
}

void signal_process(const process_info& seen, int signal) noexcept {
  const unique_fd process{pidfd_open(seen.pid)};
  if (!process) return;
  const auto now = inspect(seen.pid);
  if (now && now->started_at == seen.started_at) pidfd_send_signal(process.value(), signal);
}

bool has_children() noexcept {
  siginfo_t ignored{};
  return ::waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

void reap_children(std::span<const pid_t> keep) noexcept {
  for (siginfo_t dead{}; ::waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid != 0; dead = {}) {
    if (std::ranges::find(keep, dead.si_pid) != keep.end()) return;
    ::waitid(P_PID, static_cast<id_t>(dead.si_pid), &dead, WEXITED | WNOHANG);
  }
}

bool kill_descendants(clock::time_point deadline, std::span<const pid_t> except) {
  using namespace std::chrono_literals;
  for (auto pause = 1ms; has_children(); pause = std::min(pause * 2, std::chrono::milliseconds{50})) {
    const auto alive = descendants(except);
    for (const auto& process : alive) signal_process(process, SIGKILL);
    reap_children({});
    if (alive.empty() && !except.empty()) return true;
    if (!has_children()) return true;
    if (clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace tutti::launch
