#pragma once
#include "sweep.hpp"

namespace bench {

/// Times the collective on memory of the host, by tutti's own algorithms.
void run_on_host(communicator& world, const options& o, table& rows);

}  // namespace bench
