#pragma once

namespace tutti::launch {

/// Runs `tutti-run --status [PID] [--json]`: shows the status of a running job, again and again if stdout is a
/// terminal. Returns the exit status: 0 if nothing is stuck, 1 if a rank is or the world has failed. Throws `failure`.
int show_status(int argc, char** argv);

}  // namespace tutti::launch
