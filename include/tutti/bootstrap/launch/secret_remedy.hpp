#pragma once
#include <string>

#include <tutti/bootstrap/launch.hpp>

namespace tutti::detail {

/// Returns what the user has to type so that all ranks have a secret, for the launcher that has started them: the end
/// of a message that refuses to listen without one.
inline std::string secret_remedy(launcher by) {
  const std::string make =
      "Type once, in a folder that all machines share: (umask 077; head -c 32 /dev/urandom >job.secret)";
  const std::string set = "export TUTTI_SECRET_FILE=$PWD/job.secret";
  const std::string trust = "On a network that you trust, TUTTI_NETWORK=insecure does without";
  switch (by) {
    case launcher::tutti_run:
      return "Start all machines by one tutti-run --hosts node1:4,node2:4, which hands a secret over. Or " +
             std::string{"t"} + make.substr(1) + ", and on each machine before tutti-run: " + set + ". " + trust;
    case launcher::torchrun:
      return make + ", and on each machine before torchrun: " + set + ". " + trust;
    case launcher::open_mpi:
      return make + ", and start with: mpirun -x TUTTI_SECRET_FILE=$PWD/job.secret. " + trust +
             " (mpirun -x TUTTI_NETWORK=insecure)";
    case launcher::mpich:
      return make + ", and start with: mpiexec -genv TUTTI_SECRET_FILE $PWD/job.secret. " + trust +
             " (mpiexec -genv TUTTI_NETWORK insecure)";
    case launcher::horovod:
      return make + ", and before horovodrun: " + set + ". " + trust;
    case launcher::slurm:
      return make + ", and before srun: " + set + ". " + trust;
    case launcher::by_hand:
      break;
  }
  return "Start the job with tutti-run --hosts node1:4,node2:4, which hands a secret over; or listen on 127.0.0.1. "
         "Or " +
         std::string{"t"} + make.substr(1) + ", and for each rank: " + set + ". " + trust;
}

}  // namespace tutti::detail
