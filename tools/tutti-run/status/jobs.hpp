#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tutti-run/status/recordings.hpp"

namespace tutti::launch {

/// Job of which at least one rank runs on this machine, or is started from it.
struct running_job {
  pid_t process = 0;  ///< its tutti-run, or one of its ranks
  pid_t server = 0;   ///< of ask_status_server(), which knows the ranks of all machines; 0: none
  held_ranks ranks;
};

/// Returns the job that `process` is of or above, or without that the only one of this user here. Throws `failure` with
/// status 2, which lists the jobs if there are several.
running_job find_job(std::optional<pid_t> process);

}  // namespace tutti::launch
