#pragma once
#include <tutti/backend/communicator_core.hpp>
#include <tutti/backend/composed.hpp>

namespace tutti {

class threads_transport;

/// The backend whose ranks are threads of one process, as in nn.DataParallel and in tests.
using threads = composed<threads_transport>;

}  // namespace tutti

#if defined(TUTTI_SEPARATE_COMPILATION)
namespace tutti {
#define TUTTI_TEMPLATE extern template
#define TUTTI_TRANSPORT threads_transport
#include <tutti/impl/backend/instances.inl>
}  // namespace tutti
#else
#include <tutti/transport/threads.hpp>
#endif
