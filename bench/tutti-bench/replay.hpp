#pragma once
#include <vector>

#include "options.hpp"
#include "recording.hpp"
#include "sweep.hpp"

namespace bench {

/// Makes the calls of a recording again, on a world of as many ranks, and prints a table on rank 0.
void replay(communicator world, const options& o, const std::vector<recording>& all);

}  // namespace bench
