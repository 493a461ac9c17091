#pragma once

#include <sys/resource.h>

#include <string_view>

namespace tutti::launch {

/// Makes room for the descriptors that so many `things` ("ranks", "machines"), each with a process, need here, and
/// checks that so many processes may be started; returns the descriptor limit as it was, which is what the ranks are to
/// have. Throws `failure` with status 2.
rlimit reserve_resources(int number, std::string_view things);

}  // namespace tutti::launch
