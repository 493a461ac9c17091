#pragma once

#include "tutti-run/options.hpp"

namespace tutti::launch {

/// Runs the job and returns its exit status.
///
/// Two processes do it. The guard, with the pid that the user knows, passes signals on; the supervisor, in a session of
/// its own, is the parent of the ranks. Each is a subreaper, and each ends the whole job if the other is killed.
int run_job(const options& given);

}  // namespace tutti::launch
