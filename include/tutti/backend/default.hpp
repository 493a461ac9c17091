#pragma once
#include <tutti/backend/composed.hpp>
#include <tutti/transport/host.hpp>

namespace tutti {

/// The backend of CPUs: shared memory inside a machine, TCP between machines.
using host = composed<host_transport>;

}  // namespace tutti
