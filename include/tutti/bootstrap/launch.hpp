#pragma once
#include <cstdint>
#include <string>

#include <tutti/bootstrap/rendezvous/url.hpp>

namespace tutti {

/// Launchers whose variables are known.
enum class launcher : std::uint8_t { tutti_run, torchrun, by_hand, open_mpi, mpich, horovod, slurm };

/// Place of this process in its job, as a launcher gave it.
struct launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;            ///< rank among those of this machine; -1: not given
  int local_size = -1;            ///< number of ranks on this machine; -1: not given
  std::string job;                ///< equal on all ranks, different for other jobs; empty: not given
  rendezvous_url rendezvous;      ///< `env` only for a world of one
  std::string source;             ///< the variables that gave rank and size, for messages
  std::string rendezvous_source;  ///< the variables that gave the rendezvous, for messages
  launcher by = launcher::by_hand;
};

}  // namespace tutti
