#pragma once
#include <tutti/backend/composed.hpp>
#include <tutti/impl/backend/communicator_core.hpp>
#include <tutti/impl/backend/composed.hpp>
#include <tutti/transport/sim/transport.hpp>

namespace tutti {

/// The backend whose ranks are fibers of one thread, for tests: order and hang bugs replay by seed.
using sim = composed<sim_transport>;

}  // namespace tutti
