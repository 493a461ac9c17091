#pragma once
#include <tutti/bootstrap/options.hpp>
#include <tutti/communicator.hpp>

namespace tutti {

/// Joins this process to its world and returns the world's communicator. Called by every process of the job, as often
/// on each, in the thread that lives longest; collective, blocks for at most options.join_timeout.
///
/// Who the ranks are and where they meet is what `options` say, else the environment of the launcher: tutti-run,
/// torchrun, mpirun, mpiexec, horovodrun, srun, or RANK and WORLD_SIZE set by hand (docs/environment.md). Without any
/// of it, and only then, this is a world of one. Either all ranks get their world, or all throw, within a second of
/// the cause; whoever calls it again meets those who do, too. Nothing is left behind: no thread, no file, no socket.
/// Errors: usage_error for options and variables that contradict each other; error{rendezvous} names the ranks that are
/// missing or claim the same place, {auth_failed}, {protocol}, {peer_lost}, {out_of_resources}, {aborted}.
/// Costs some ten short exchanges with the process of rank 0; see docs/rendezvous.md.
template <class Backend = host>
[[nodiscard]] communicator<Backend> init(const init_options& options = {});

}  // namespace tutti

#if defined(TUTTI_SEPARATE_COMPILATION)
extern template tutti::communicator<tutti::host> tutti::init<tutti::host>(const init_options&);
#else
#include <tutti/impl/bootstrap/init.hpp>
#endif
