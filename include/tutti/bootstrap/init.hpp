#pragma once
#include <tutti/bootstrap/options.hpp>
#include <tutti/communicator.hpp>

namespace tutti {

/// Joins this process to its world and returns the world's communicator. Collective: every process of the job calls it,
/// equally often, on the thread that lives longest. Blocks for at most options.join_timeout.
///
/// Rank, world size and rendezvous come from `options`, else from the environment of the launcher: tutti-run, torchrun,
/// mpirun, mpiexec, horovodrun, srun, or RANK and WORLD_SIZE set by hand (docs/environment.md). Without any of these,
/// and only then, it returns a world of one. Either all ranks get their world or all throw, within a second of the
/// cause; ranks that then call it again meet again. No thread, file or socket of the rendezvous remains. Errors:
/// usage_error for options and variables that contradict each other; error{rendezvous} names the ranks that are missing
/// or claim the same place, {auth_failed}, {protocol}, {peer_lost}, {out_of_resources}, {aborted}. Costs about ten
/// short exchanges with the process of rank 0; see docs/rendezvous.md.
template <class Backend = host>
[[nodiscard]] communicator<Backend> init(const init_options& options = {});

}  // namespace tutti

#if defined(TUTTI_SEPARATE_COMPILATION)
extern template tutti::communicator<tutti::host> tutti::init<tutti::host>(const init_options&);
#else
#include <tutti/impl/bootstrap/init.hpp>
#endif
