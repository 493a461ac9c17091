#pragma once

/// Definitions that TUTTI_SEPARATE_COMPILATION leaves out of all other files. One source file of a program that defines
/// the macro includes this header, or the program links the library tutti::compiled.

#if !defined(TUTTI_SEPARATE_COMPILATION)
#error "tutti: define TUTTI_SEPARATE_COMPILATION for the whole program, also for the file that includes impl/src.hpp"
#endif

#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/spawn.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/impl/algo/bring_all.hpp>
#include <tutti/impl/backend/communicator_core.hpp>
#include <tutti/impl/backend/composed.hpp>
#include <tutti/impl/bootstrap/init.hpp>
#include <tutti/impl/bootstrap/spawn.hpp>
#include <tutti/impl/bootstrap/threads.hpp>
#include <tutti/impl/communicator/overlapping.hpp>
#include <tutti/impl/grad/agreement.hpp>
#include <tutti/impl/grad/arena.hpp>
#include <tutti/impl/grad/layout.hpp>
#include <tutti/impl/grad/own_memory.hpp>
#include <tutti/impl/grad/pass_state.hpp>
#include <tutti/impl/grad/placement.hpp>
#include <tutti/impl/grad/plan.hpp>
#include <tutti/impl/grad/ready_tracker.hpp>
#include <tutti/impl/grad/usage.hpp>
#include <tutti/impl/grad/weight_sync.hpp>
#include <tutti/impl/kernel_instances.hpp>
#include <tutti/impl/watch/dump.hpp>
#include <tutti/impl/watch/flight.hpp>
#include <tutti/impl/watch/flight_recorder.hpp>
#include <tutti/impl/watch/gpu_readings.hpp>
#include <tutti/impl/watch/last_call.hpp>
#include <tutti/impl/watch/metrics.hpp>
#include <tutti/impl/watch/metrics_endpoint.hpp>
#include <tutti/impl/watch/metrics_file.hpp>
#include <tutti/impl/watch/trace_file.hpp>
#include <tutti/transport/host.hpp>
#include <tutti/transport/threads.hpp>

namespace tutti {

#define TUTTI_TEMPLATE template
#define TUTTI_TRANSPORT host_transport
#include <tutti/impl/backend/instances.inl>

#define TUTTI_TEMPLATE template
#define TUTTI_TRANSPORT threads_transport
#include <tutti/impl/backend/instances.inl>

template communicator<host> init<host>(const init_options&);
template void detail::spawn_ranks<host>(int, const std::source_location&, const spawn_options&,
                                        detail::rank_function<host>);
template communicator<threads> join<threads>(std::shared_ptr<threads_hub>, int, duration);
template std::shared_ptr<threads_hub> detail::make_hub<threads_hub>(int);

template class grad::detail::launcher<communicator<host>, op>;
template class grad::reducer<communicator<host>>;

}  // namespace tutti
