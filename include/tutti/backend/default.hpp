#pragma once
#include <tutti/backend/composed.hpp>
#include <tutti/backend/issuer.hpp>
#include <tutti/core/when_used.hpp>

namespace tutti {

template <class>
class basic_host_transport;
using host_transport = basic_host_transport<when_used>;
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
