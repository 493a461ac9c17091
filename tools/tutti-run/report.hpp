#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tutti-run/output/output.hpp"
#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/rank_names.hpp"

namespace tutti::launch {

/// How one rank ended.
struct rank_end {
  /// When something was seen, in the order in which the kernel saw it.
  struct mark {
    std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
    clock::time_point at{};
  };

  pid_t pid = 0;
  bool ended = false;
  bool by_launcher = false;  ///< after the launcher had begun to end the job
  int code = 0;              ///< CLD_EXITED, CLD_KILLED or CLD_DUMPED
  int status = 0;            ///< exit code or signal
  std::string lost;  ///< why nothing more is known of it than that its machine cannot be reached; empty otherwise
  mark died;
  int blames = -1;  ///< the rank by which its world failed, as the library told it; -1: itself, or unknown

  bool failed() const noexcept { return ended && !by_launcher && (status != 0 || !lost.empty()); }
};

enum class job_end { by_itself, interrupted, timed_out };

struct job_summary {
  rank_names names;
  int world = 0;  ///< ranks of the job; more than `ranks` where other machines have launchers of their own
  std::vector<rank_end> ranks;
  clock::time_point started;
  clock::time_point ending;   ///< when SIGTERM was sent, if it was
  clock::time_point killing;  ///< when SIGKILL was first sent, if it was
  job_end end = job_end::by_itself;
  int interrupt = 0;     ///< the signal
  bool gave_up = false;  ///< something survived SIGKILL
};

/// What to say about a job that did not end well, empty if it did.
std::string describe(const job_summary& job, const output& shown);

/// The exit status of the launcher.
int exit_status(const job_summary& job) noexcept;

/// "0-2, 5", where the first index is that of rank `first`.
std::string rank_list(const std::vector<int>& indices, int first = 0);

}  // namespace tutti::launch
