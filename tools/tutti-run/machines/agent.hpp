#pragma once

#include "tutti-run/guard.hpp"

namespace tutti::launch {

/// Runs the ranks of one machine for a launcher elsewhere, which speaks over stdin and stdout; returns the exit status.
///
/// When the launcher or the connection is gone, the ranks are ended with SIGTERM and, after `--grace`, SIGKILL.
int run_agent(const supervision_place& here);

}  // namespace tutti::launch
