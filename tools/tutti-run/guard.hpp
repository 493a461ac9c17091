#pragma once

#include <functional>

#include "tutti-run/posix.hpp"
#include "tutti-run/rendezvous.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {

/// Inputs of the supervising process.
struct supervision_place {
  const signal_state& signals;
  secret_file& secret;
  const unique_fd& lifeline;  ///< brings signals; ends with the guard
};
using supervision = std::function<int(const supervision_place&)>;

/// Does the work in a process of its own, and returns its exit status.
///
/// Two processes run a job. The guard, with the pid that the user knows, passes signals on; the supervisor, in a
/// session of its own, does the work. Each is a subreaper, and each ends the whole job if the other is killed.
int run_guarded(const supervision& work);

}  // namespace tutti::launch
