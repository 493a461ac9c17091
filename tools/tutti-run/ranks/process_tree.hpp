#pragma once

#include <sys/types.h>

#include <span>
#include <unordered_map>
#include <vector>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

struct process_info {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  unsigned flags = 0;                 ///< the kernel's PF_ flags
  char state = '?';                   ///< as in /proc/<pid>/stat; Z and X are dead
  unsigned long long started_at = 0;  ///< with the pid, names a process for good
};

/// Returns all processes that /proc shows, dead ones included.
std::vector<process_info> all_processes();

/// All processes of one moment, by their numbers.
class process_table {
 public:
  process_table();
  [[nodiscard]] const std::unordered_map<pid_t, process_info>& all() const noexcept { return all_; }
  /// Returns a process and those above it, as far as they are known.
  [[nodiscard]] std::vector<pid_t> line_of(pid_t pid) const;

 private:
  std::unordered_map<pid_t, process_info> all_;
};

/// The living processes below this one, parents before children, without those in `except` and what is below them.
std::vector<process_info> descendants(std::span<const pid_t> except = {});

/// Returns true if a process has begun to die, or is dead.
bool is_exiting(pid_t pid) noexcept;

/// Signals exactly the process that was seen, never another that got its number since.
void signal_process(const process_info& seen, int signal) noexcept;

/// Returns true if any child is left, dead or alive. Since this process is a subreaper, none means that nothing is left
/// below.
bool has_children() noexcept;

/// Takes the exit status of dead children up to the first that is in `keep`, which someone else waits for.
void reap_children(std::span<const pid_t> keep) noexcept;

/// Kills and reaps everything below this process, `except` aside; false if something still lived at the deadline.
bool kill_descendants(clock::time_point deadline, std::span<const pid_t> except = {});

}  // namespace tutti::launch
