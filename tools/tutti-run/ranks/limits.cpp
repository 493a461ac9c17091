#include "tutti-run/ranks/limits.hpp"

#include <unistd.h>

#include "tutti-run/posix.hpp"

namespace tutti::launch {
namespace {

constexpr rlim_t descriptors_each = 5;  // a pidfd, three pipes, and the gate while starting
constexpr rlim_t descriptors_at_rest = 32;
constexpr rlim_t own_processes = 2;

}  // namespace

rlimit reserve_resources(int number, std::string_view things) {
  const auto count = static_cast<rlim_t>(number);
  rlimit processes{};
  check(::getrlimit(RLIMIT_NPROC, &processes), "read the limit of processes");
  // The kernel does not apply this limit to root.
  if (::geteuid() != 0 && processes.rlim_cur != RLIM_INFINITY && count + own_processes > processes.rlim_cur)
    throw failure(
        2, text(number, ' ', things, " need ", count + own_processes, " processes, and the limit of this user is ",
                processes.rlim_cur, ": raise it (ulimit -u) or start fewer"));

  rlimit files{};
  check(::getrlimit(RLIMIT_NOFILE, &files), "read the limit of open files");
  const rlim_t needed = count * descriptors_each + descriptors_at_rest;
  if (files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= needed) return files;
  if (files.rlim_max != RLIM_INFINITY && files.rlim_max < needed) {
    const rlim_t most =
        files.rlim_max > descriptors_at_rest ? (files.rlim_max - descriptors_at_rest) / descriptors_each : 0;
    throw failure(2, text(number, ' ', things, " need ", needed, " open files, and the limit is ", files.rlim_max,
                          ": raise it (ulimit -Hn) or start at most ", most));
  }
  const rlimit raised{needed, files.rlim_max};
  check(::setrlimit(RLIMIT_NOFILE, &raised), "raise the limit of open files");
  return files;
}

}  // namespace tutti::launch
