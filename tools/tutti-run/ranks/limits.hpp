#pragma once

#include <sys/resource.h>

namespace tutti::launch {

/// Makes room for the descriptors that `ranks` need here, and checks that so many processes may be started;
/// returns the descriptor limit as it was, which is what the ranks are to have. Throws `failure` with status 2.
rlimit reserve_resources(int ranks);

}  // namespace tutti::launch
