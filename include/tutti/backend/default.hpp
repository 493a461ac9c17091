#pragma once
#include <tutti/backend/communicator_core.hpp>
#include <tutti/backend/composed.hpp>

namespace tutti {

class host_transport;
template <>
inline constexpr bool has_roster<host_transport> = true;

/// The backend of CPUs: shared memory inside a machine, TCP between machines.
using host = composed<host_transport>;

}  // namespace tutti

#if defined(TUTTI_SEPARATE_COMPILATION)
namespace tutti {
#define TUTTI_TEMPLATE extern template
#define TUTTI_TRANSPORT host_transport
#include <tutti/impl/backend/instances.inl>
}  // namespace tutti
#else
#include <tutti/transport/host.hpp>
#endif
