#pragma once
#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/os/cgroup.hpp>
#include <tutti/os/fd.hpp>

namespace tutti::os {

namespace detail {

struct process_stat {
  char state = 0;  ///< 0: nothing was read
  int error = 0;   ///< the errno; ENOENT or ESRCH if there is no such process
  std::uint64_t threads = 0;
  std::uint64_t start_time = 0;
};

/// Return true if a state that /proc shows is that of a process that a signal or a debugger has stopped, or that has
/// ended.
constexpr bool is_stopped(char state) noexcept { return state == 'T' || state == 't'; }
constexpr bool has_ended(char state) noexcept { return state == 'Z' || state == 'X' || state == 'x'; }

/// Reads /proc/<pid>/stat without allocating.
inline process_stat read_process_stat(::pid_t pid) noexcept {
  std::array<char, 32> path{"/proc/"};
  char* const end = std::to_chars(path.data() + 6, path.data() + 24, pid).ptr;
  std::string_view{"/stat"}.copy(end, 5);
  const int saved = errno;
  const fd file{::open(path.data(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 1024> text;
  const ::ssize_t n = file ? ::read(file.native(), text.data(), text.size()) : -1;
  const int error = std::exchange(errno, saved);
  if (n <= 0) return {0, n == 0 ? ESRCH : error, 0, 0};
  std::string_view rest{text.data(), static_cast<std::size_t>(n)};
  // The second field is the program's name, which may hold blanks and parentheses itself.
  const auto name_end = rest.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= rest.size()) return {0, EIO, 0, 0};
  rest.remove_prefix(name_end + 2);
  process_stat s;
  s.state = rest.front();
  for (int field = 3; field <= 22; ++field) {
    if (field == 20) s.threads = parse_number(rest).value_or(0);
    if (field == 22) s.start_time = parse_number(rest).value_or(0);
    rest.remove_prefix((std::min)(rest.size(), rest.find(' ')));
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return s;
}

}  // namespace detail

/// Returns the start time of a process, in clock ticks since boot: with its pid it identifies one process, as pids are
/// reused. Nothing if there is no such process.
[[nodiscard]] inline std::optional<std::uint64_t> process_start_time(::pid_t pid) noexcept {
  const auto s = detail::read_process_stat(pid);
  if (s.state == 0) return std::nullopt;
  return s.start_time;
}

/// Returns true if the process that had `pid` and began at `start_time` (0: unknown) still runs. One that was killed
/// and not yet waited for is dead; one whose main thread has ended while others run is alive. Costs one read of /proc
/// (about 10 us).
[[nodiscard]] inline bool is_alive(::pid_t pid, std::uint64_t start_time) noexcept {
  const auto s = detail::read_process_stat(pid);
  if (s.state == 0) {
    // Without /proc, or a descriptor to read it with, tests whether the pid is taken.
    if ((s.error == ENOENT || s.error == ESRCH) && ::access("/proc/self/stat", R_OK) == 0) return false;
    return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
  }
  if (start_time != 0 && s.start_time != start_time) return false;
  return !detail::has_ended(s.state) || s.threads > 1;
}

/// Returns the CPUs on which this process may run, one bit each; empty if the kernel does not say.
[[nodiscard]] inline std::vector<std::uint64_t> affinity() {
  for (std::size_t size = 1024; size <= (1U << 20); size *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    std::vector<std::uint64_t> mask(bytes / sizeof(std::uint64_t));
    if (::sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) == 0) return mask;
    if (errno != EINVAL) break;
  }
  return {};
}

/// Returns the number of CPUs that this process may use: its affinity mask, and the control group's quota if that is
/// less. At least 1.
[[nodiscard]] inline int usable_cpus() {
  int cpus = 0;
  for (const std::uint64_t word : affinity()) cpus += std::popcount(word);
  if (cpus == 0) cpus = static_cast<int>((std::max)(1U, std::thread::hardware_concurrency()));
  return (std::max)(1, (std::min)(cpus, cgroup_cpu_limit().value_or(cpus)));
}

}  // namespace tutti::os
