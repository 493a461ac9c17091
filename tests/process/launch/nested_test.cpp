#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "process/worlds.hpp"

// tutti-run inside a rank or a task of another launcher, whose variables say another place in another world.
TEST_CASE("tutti-run's ranks find each other inside every other launcher") {
  using namespace tutti_test;
  struct outer {
    std::string name;
    std::vector<std::string> variables;
  };
  const outer table[] = {
      {"srun",
       {"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_NUM_TASKS=1",
        "SLURM_LOCALID=0"}},
      {"srun, one task of several",
       {"SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_STEPID=3", "SLURM_STEP_ID=3", "SLURM_PROCID=2", "SLURM_NTASKS=4",
        "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
        "SLURM_STEP_NODELIST=node[07-08]", "SLURM_MPI_TYPE=pmi2", "PMI_RANK=2", "PMI_SIZE=4", "PMI_JOBID=1.3"}},
      {"half of srun", {"SLURM_STEP_ID=0", "SLURM_NTASKS=2"}},
      {"sbatch", {"SLURM_JOB_ID=1", "SLURM_NTASKS=4", "SLURM_JOB_NUM_NODES=2", "SLURM_PROCID=0"}},
      {"torchrun",
       {"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=8", "GROUP_RANK=0", "GROUP_WORLD_SIZE=1",
        "ROLE_RANK=3", "ROLE_WORLD_SIZE=8", "MASTER_ADDR=nowhere.invalid", "MASTER_PORT=1", "TORCHELASTIC_RUN_ID=x",
        "TORCHELASTIC_USE_AGENT_STORE=True"}},
      {"Open MPI",
       {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
        "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=ns", "PMIX_RANK=1"}},
      {"MPICH", {"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "PMI_FD=11"}},
      {"horovodrun",
       {"HOROVOD_RANK=1", "HOROVOD_SIZE=4", "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=4",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR=nowhere.invalid", "HOROVOD_GLOO_RENDEZVOUS_PORT=5"}},
      {"tutti-run",
       {"RANK=1", "WORLD_SIZE=4", "TUTTI_JOB=ab", "TUTTI_RENDEZVOUS=unix:@tutti-ab", "TUTTI_REPORT_FD=9",
        "TUTTI_SECRET_FD=9", "TUTTI_SECRET_FILE=/nowhere"}},
      {"by hand",
       {"TUTTI_RANK=1", "TUTTI_WORLD_SIZE=4", "TUTTI_LOCAL_RANK=1", "TUTTI_LOCAL_SIZE=4",
        "TUTTI_RENDEZVOUS=tcp://nowhere.invalid:1"}},
  };
  for (const outer& o : table) {
    CAPTURE(o.name);
    processes all;
    all.start(launched(2, "join", {}, o.variables));
    const auto report = all.wait().front();
    CAPTURE(report.out);
    CHECK(report.status == 0);
    CHECK(occurrences(report.out, "sum 3 ") == 2);
  }
}
