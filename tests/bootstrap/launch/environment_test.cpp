#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tutti/bootstrap/launch/environment.hpp>
#include <vector>

namespace {

/// Variables as `env` prints them, separated by white space.
class variables {
 public:
  explicit variables(std::string_view text) {
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) values_[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  std::optional<std::string_view> operator()(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  }
  void set(const std::string& name, const std::string& value) { values_[name] = value; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

std::optional<tutti::launch> read(std::string_view text) { return tutti::read_environment(variables(text), 1000); }

std::string refusal(const variables& v) {
  try {
    const auto found = tutti::read_environment(v, 1000);
    return found ? "accepted as " + found->source + " at " + to_string(found->rendezvous) : "accepted as alone";
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
}

struct launched {
  const char* name;
  std::string text;
  int rank, world_size, local_rank, local_size;
  const char *job, *rendezvous, *source, *rendezvous_source;
};

// What a task of `srun -N2 -n4` and one of `srun -n3` inside a batch job of four tasks see (Slurm 22.05).
const std::string srun_task_2_of_4 = R"(SLURM_GTIDS=2,3 SLURM_JOBID=1 SLURM_JOB_ID=1 SLURM_JOB_NODELIST=node[07-08]
  SLURM_JOB_NUM_NODES=2 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODEID=1
  SLURM_NODELIST=node[07-08] SLURM_NPROCS=4 SLURM_NTASKS=4 SLURM_PROCID=2 SLURM_STEPID=0 SLURM_STEP_ID=0
  SLURM_STEP_NODELIST=node[07-08] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2)
  SLURM_TASKS_PER_NODE=2(x2) )";
const std::string srun_task_0_of_4 = R"(SLURM_JOB_ID=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_STEP_ID=0
  SLURM_STEP_NODELIST=node[07-08] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) )";
const std::string srun_in_batch = R"(SLURM_DISTRIBUTION=block SLURM_JOBID=3 SLURM_JOB_ID=3
  SLURM_JOB_NODELIST=node[07-08] SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODEID=1 SLURM_NTASKS=3
  SLURM_PROCID=2 SLURM_STEPID=5 SLURM_STEP_ID=5 SLURM_STEP_NODELIST=node[07-08] SLURM_STEP_NUM_NODES=2
  SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_TASKS_PER_NODE=2,1 )";
// A batch script of `sbatch -N2 -n4`, of `sbatch -N1`, and a shell of `salloc -N2 -n4`.
const std::string batch_4 = R"(SLURM_GTIDS=0 SLURM_JOBID=3 SLURM_JOB_ID=3 SLURM_JOB_NODELIST=node[07-08]
  SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODEID=0 SLURM_NODELIST=node[07-08] SLURM_NPROCS=4
  SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=2(x2) )";
const std::string batch_1 = R"(SLURM_GTIDS=0 SLURM_JOBID=5 SLURM_JOB_ID=5 SLURM_JOB_NODELIST=node07
  SLURM_JOB_NUM_NODES=1 SLURM_LOCALID=0 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_NODELIST=node07 SLURM_PROCID=0
  SLURM_TASKS_PER_NODE=4 )";
const std::string salloc_4 = R"(SLURM_JOBID=6 SLURM_JOB_ID=6 SLURM_JOB_NODELIST=node[07-08] SLURM_JOB_NUM_NODES=2
  SLURM_NNODES=2 SLURM_NODELIST=node[07-08] SLURM_NPROCS=4 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=2(x2) )";
// What rank 3 of `mpiexec -n 4` and of `mpirun -n 4` sees inside the batch job: the daemons came by srun, one per node.
const std::string hydra_in_slurm = R"(MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=6 PMI_RANK=3 PMI_SIZE=4
  SLURM_JOBID=3 SLURM_JOB_ID=3 SLURM_JOB_NODELIST=node[07-08] SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=0 SLURM_NNODES=2
  SLURM_NODEID=1 SLURM_NPROCS=2 SLURM_NTASKS=4 SLURM_PROCID=1 SLURM_STEPID=2 SLURM_STEP_ID=2
  SLURM_STEP_NODELIST=node[07-08] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) )";
const std::string open_mpi_in_slurm = R"(OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2
  OMPI_COMM_WORLD_NODE_RANK=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=2003173377 PMIX_RANK=3
  SLURM_JOBID=7 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node[07-08] SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=2
  SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[07-08] SLURM_STEP_NUM_TASKS=2 )";
const std::string torchrun_static = R"(LOCAL_RANK=1 RANK=5 GROUP_RANK=1 ROLE_RANK=5 ROLE_NAME=default
  LOCAL_WORLD_SIZE=4 WORLD_SIZE=8 GROUP_WORLD_SIZE=2 ROLE_WORLD_SIZE=8 MASTER_ADDR=node07 MASTER_PORT=29500
  TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_RUN_ID=none )";
const std::string open_mpi_5 = R"(OMPI_COMMAND=env OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2
  OMPI_COMM_WORLD_NODE_RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_UNIVERSE_SIZE=2 OMPI_VERSION=5.0.11
  PMIX_NAMESPACE=prterun-vm-4996@1 PMIX_RANK=1 )";
const std::string hydra =
    "HYDI_CONTROL_FD=7 PMI_HOSTNAME=vm MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_RANK=1 "
    "PMI_FD=11 PMI_SIZE=2 ";
const std::string horovod = R"(HOROVOD_HOSTNAME=b HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1
  HOROVOD_LOCAL_SIZE=2 HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2 HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo
  HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1 HOROVOD_GLOO_RENDEZVOUS_PORT=41234 HOROVOD_GLOO_IFACE=eth0 )";

}  // namespace

TEST_CASE("environment: what each launcher leaves is understood") {
  const std::string agent = torchrun_static +
                            " TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=job-77"
                            " TORCHELASTIC_RESTART_COUNT=2";
  const std::string no_agent = torchrun_static + " TORCHELASTIC_USE_AGENT_STORE=False";
  const std::string in_srun = srun_task_2_of_4 + agent;  // four agents in the step, two of them still to join
  const std::string in_batch = batch_4 + torchrun_static;
  const std::string tutti =
      "TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 TUTTI_JOB=j1 TUTTI_RENDEZVOUS=unix:@tutti-0-j1 "
      "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=1 ";
  const std::string tutti_slurm = srun_task_2_of_4 + tutti;
  const std::string tutti_elsewhere = tutti + " RANK=7 WORLD_SIZE=9";
  const std::string query = "TUTTI_RENDEZVOUS=tcp://a:5?rank=1&world_size=3";
  const std::string by_hand = "RANK=1 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=5";
  const std::string exported = srun_task_2_of_4 + "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0";
  const std::string size_only = srun_task_2_of_4 + "WORLD_SIZE=4 MASTER_ADDR=node07 MASTER_PORT=6000";
  const std::string address_only = srun_task_2_of_4 + "MASTER_ADDR=10.0.0.7";
  const std::string port_only = srun_task_2_of_4 + "MASTER_PORT=6000";
  const std::string file_and_size = srun_task_2_of_4 + "TUTTI_RENDEZVOUS=file:///shared/meet?world_size=4";
  const std::string tasks_by_hand =
      srun_task_2_of_4 + "TUTTI_RANK=2 TUTTI_WORLD_SIZE=4 TUTTI_RENDEZVOUS=file:///shared/meet";
  const std::string rank_per_node = srun_task_2_of_4 + "TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 TUTTI_RENDEZVOUS=tcp://a:1";
  const std::string forked = srun_task_2_of_4 +
                             "RANK=16 WORLD_SIZE=32 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 "
                             "MASTER_ADDR=node07 MASTER_PORT=6000";
  const std::string pmi2 = "PMI_FD=13 PMI_JOBID=1.0 PMI_RANK=2 PMI_SIZE=4 SLURM_MPI_TYPE=pmi2 " + srun_task_2_of_4;
  const std::string one_node =
      "SLURM_JOB_ID=2 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 "
      "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=node07";
  const std::string old_slurm =
      "SLURM_JOBID=2 SLURM_STEPID=3 SLURM_PROCID=1 SLURM_NTASKS=2 "
      "SLURM_JOB_NODELIST=a[9-10]";
  const std::string mpi_named = hydra_in_slurm + "MASTER_ADDR=node07 MASTER_PORT=7000";
  const std::string mpi_url = open_mpi_in_slurm + "TUTTI_RENDEZVOUS=file:///shared/meet";
  const std::string open_mpi_4 =
      "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "
      "OMPI_MCA_ess_base_jobid=2017656833";
  const std::string hydra_job = hydra + "TUTTI_JOB=run1";
  const std::string horovod_here = horovod + " HOROVOD_LOCAL_SIZE=4 HOROVOD_LOCAL_RANK=3";
  const std::string interactive = "SLURM_JOB_ID=9 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=1";
  const std::string named_batch = batch_1 + "SLURM_STEP_ID=batch";
  const std::string by_hand_in_batch = batch_4 + "RANK=1 WORLD_SIZE=2 MASTER_ADDR=node07 MASTER_PORT=6000";
  const std::string env_url = by_hand + " TUTTI_RENDEZVOUS=env://";

  const launched table[] = {
      {"torchrun, static", torchrun_static, 5, 8, 1, 4, "", "tcp://node07:29500", "torchrun", "MASTER_PORT"},
      {"torchrun, agent's store", agent, 5, 8, 1, 4, "job-77.2", "tcp://node07:29501", "RANK", "torchrun's own"},
      {"torchrun, no agent's store", no_agent, 5, 8, 1, 4, "", "tcp://node07:29500", "RANK", "MASTER_PORT"},
      {"torchrun in srun", in_srun, 5, 8, 1, 4, "job-77.2", "tcp://node07:29501", "torchrun", ""},
      {"torchrun in sbatch", in_batch, 5, 8, 1, 4, "", "tcp://node07:29500", "torchrun", ""},
      {"tutti-run", tutti, 1, 2, 1, 2, "j1", "unix:@tutti-0-j1", "TUTTI_RANK", "TUTTI_RENDEZVOUS"},
      {"tutti-run in srun", tutti_slurm, 1, 2, 1, 2, "j1", "unix:@tutti-0-j1", "set by hand", ""},
      {"tutti-run beside others", tutti_elsewhere, 1, 2, -1, -1, "j1", "unix:@tutti-0-j1", "set by hand", ""},
      {"all in the URL", query, 1, 3, -1, -1, "", "tcp://a:5", "TUTTI_RENDEZVOUS", "TUTTI_RENDEZVOUS"},
      {"by hand", by_hand, 1, 2, -1, -1, "", "tcp://[fe80::1]:5", "set by hand", "MASTER_ADDR"},
      {"env://", env_url, 1, 2, -1, -1, "", "tcp://[fe80::1]:5", "set by hand", "MASTER_ADDR"},
      {"srun", srun_task_2_of_4, 2, 4, 0, 2, "1.0", "tcp://node07:20511", "SLURM_PROCID", "SLURM_STEP_NODELIST"},
      {"srun in sbatch", srun_in_batch, 2, 3, 0, 1, "3.5", "tcp://node07:20578", "SLURM_STEP_NUM_TASKS", "JOB_ID"},
      {"srun, one node", one_node, 1, 2, 1, 2, "2.0", "unix:@tutti-1000-2.0", "srun", "this machine"},
      {"srun, one node, MASTER_PORT", one_node + " MASTER_PORT=6000", 1, 2, 1, 2, "2.0", "tcp://node07:6000", "srun",
       "MASTER_PORT"},
      {"srun, old names", old_slurm, 1, 2, -1, -1, "2.3", "tcp://a9:20545", "SLURM_NTASKS", "JOB_NODELIST"},
      {"srun, a file and the size", file_and_size, 2, 4, 0, 2, "1.0", "file:///shared/meet", "srun",
       "TUTTI_RENDEZVOUS"},
      {"srun, numbers by hand", tasks_by_hand, 2, 4, -1, -1, "", "file:///shared/meet", "TUTTI_RANK", "TUTTI_REND"},
      {"srun, a rank per node", rank_per_node, 1, 2, -1, -1, "", "tcp://a:1", "TUTTI_RANK", "TUTTI_REND"},
      {"srun --mpi=pmi2", pmi2, 2, 4, 0, 2, "1.0", "tcp://node07:20511", "srun", ""},
      {"srun, RANK exported", exported, 2, 4, 0, 2, "1.0", "tcp://node07:20511", "set by hand", ""},
      {"srun, WORLD_SIZE exported", size_only, 2, 4, 0, 2, "1.0", "tcp://node07:6000", "srun", "MASTER_ADDR"},
      {"srun, MASTER_ADDR only", address_only, 2, 4, 0, 2, "1.0", "tcp://10.0.0.7:20511", "srun", "SLURM_JOB"},
      {"srun, MASTER_PORT only", port_only, 2, 4, 0, 2, "1.0", "tcp://node07:6000", "srun", "MASTER_PORT"},
      {"srun, tasks that fork", forked, 16, 32, 0, 8, "", "tcp://node07:6000", "set by hand", ""},
      {"by hand in sbatch", by_hand_in_batch, 1, 2, -1, -1, "", "tcp://node07:6000", "set by hand", ""},
      {"sbatch, one task", batch_1, 0, 1, 0, 1, "5", "", "sbatch", ""},
      {"sbatch, named step", named_batch, 0, 1, 0, 1, "5", "", "sbatch", ""},
      {"interactive step", interactive, 0, 1, 0, 1, "9", "", "sbatch", ""},
      {"Open MPI 5", open_mpi_5, 1, 2, 1, 2, "prterun-vm-4996@1", "unix:@tutti-1000-prterun-vm-4996@1", "mpirun",
       "1000"},
      {"Open MPI 4", open_mpi_4, 0, 2, 0, 2, "2017656833", "unix:@tutti-1000-2017656833", "OMPI_COMM", ""},
      {"Open MPI in Slurm", mpi_url, 3, 4, 1, 2, "2003173377", "file:///shared/meet", "mpirun", "TUTTI_REND"},
      {"hydra", hydra_job, 1, 2, 1, 2, "run1", "unix:@tutti-1000-run1", "PMI_RANK", "this machine"},
      {"hydra in Slurm", mpi_named, 3, 4, 1, 2, "", "tcp://node07:7000", "mpiexec", "MASTER_ADDR"},
      {"horovodrun", horovod, 3, 4, 1, 2, "horovod-10.0.0.1-41234", "tcp://10.0.0.1:41235", "horovodrun", "own server"},
      {"horovodrun, MASTER_ADDR", horovod + "MASTER_ADDR=localhost MASTER_PORT=5", 3, 4, 1, 2, "horovod-10.0.0.1-41234",
       "tcp://localhost:5", "horovodrun", "MASTER_ADDR"},
      {"horovodrun, one machine", horovod_here, 3, 4, 3, 4, "horovod-10.0.0.1-41234",
       "unix:@tutti-1000-horovod-10.0.0.1-41234", "HOROVOD_RANK", "this machine"},
  };
  for (const launched& want : table) {
    CAPTURE(want.name);
    std::optional<tutti::launch> found;
    REQUIRE_NOTHROW(found = read(want.text));
    REQUIRE(found);
    CHECK(found->rank == want.rank);
    CHECK(found->world_size == want.world_size);
    CHECK(found->local_rank == want.local_rank);
    CHECK(found->local_size == want.local_size);
    CHECK(found->job == want.job);
    CHECK((found->world_size == 1 && *want.rendezvous == '\0' ? "" : to_string(found->rendezvous)) == want.rendezvous);
    CHECK_MESSAGE(found->source.find(want.source) != std::string::npos, found->source);
    CHECK_MESSAGE(found->rendezvous_source.find(want.rendezvous_source) != std::string::npos, found->rendezvous_source);
    CHECK(tutti::parse_rendezvous(to_string(found->rendezvous)) == found->rendezvous);
  }
}

TEST_CASE("environment: without a launcher there is a world of one, and only then") {
  CHECK_FALSE(read(""));
  CHECK_FALSE(
      read("HOME=/root PATH=/bin USER=u MASTER_PORT=tcp://10.0.0.1:80 SLURM_CONF=/etc/slurm.conf NCCL_DEBUG=1"));
  for (const char* trace : {"MASTER_ADDR=node1", "LOCAL_RANK=0", "TUTTI_JOB=x", "TUTTI_RENDEZVOUS=tcp://a:1",
                            "PMIX_RANK=1", "TORCHELASTIC_RUN_ID=x", "HOROVOD_GLOO_RENDEZVOUS_ADDR=a"}) {
    CAPTURE(trace);
    const std::string name = std::string(trace).substr(0, std::string_view(trace).find('='));
    const std::string why = refusal(variables(trace));
    CHECK_MESSAGE(why.find(name) != std::string::npos, why);
    CHECK_MESSAGE(why.find("set RANK and WORLD_SIZE") != std::string::npos, why);
  }
}

TEST_CASE("environment: contradictions and gaps are refused, both sides quoted, with the way out") {
  struct refused {
    const char* name;
    std::string text;
    std::vector<const char*> says;
  };
  const refused table[] = {
      {"two nodes for four tasks",
       srun_task_2_of_4 + "WORLD_SIZE=2",
       {"WORLD_SIZE=\"2\"", "SLURM_STEP_NUM_TASKS=\"4\"", "srun", "unset WORLD_SIZE", "TUTTI_WORLD_SIZE"}},
      {"the same with a rank",
       srun_task_2_of_4 + "WORLD_SIZE=2 RANK=1",
       {"WORLD_SIZE=\"2\"", "SLURM_STEP_NUM_TASKS=\"4\""}},
      {"the same with a local size",
       srun_task_2_of_4 + "WORLD_SIZE=4 RANK=1 LOCAL_WORLD_SIZE=2",
       {"RANK=\"1\"", "SLURM_PROCID=\"2\""}},
      {"rank 0 everywhere",
       srun_task_2_of_4 + "WORLD_SIZE=4 RANK=0",
       {"RANK=\"0\"", "SLURM_PROCID=\"2\"", "unset RANK"}},
      {"rank 0 alone", srun_task_2_of_4 + "RANK=0", {"RANK=\"0\"", "SLURM_PROCID=\"2\""}},
      {"forked, wrong rank",
       srun_task_2_of_4 + "RANK=8 WORLD_SIZE=32 LOCAL_WORLD_SIZE=8",
       {"WORLD_SIZE=\"32\"", "contradicts"}},
      {"forked, odd size",
       srun_task_2_of_4 + "RANK=16 WORLD_SIZE=33 LOCAL_WORLD_SIZE=8",
       {"WORLD_SIZE=\"33\"", "contradicts"}},
      {"hand against Open MPI", open_mpi_5 + "RANK=0 WORLD_SIZE=2", {"RANK=\"0\"", "OMPI_COMM_WORLD_RANK=\"1\""}},
      {"hand against hydra", hydra + "WORLD_SIZE=1", {"WORLD_SIZE=\"1\"", "PMI_SIZE=\"2\""}},
      {"hand against horovodrun", horovod + "WORLD_SIZE=2", {"WORLD_SIZE=\"2\"", "HOROVOD_SIZE=\"4\""}},
      {"URL against TUTTI_RANK",
       "TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 TUTTI_RENDEZVOUS=tcp://a:1?rank=0",
       {"rank=0", "TUTTI_RANK=\"1\""}},
      {"half a URL", "TUTTI_RENDEZVOUS=tcp://a:1?rank=0", {"only one of ?rank= and &world_size="}},
      {"a URL with two nodes for four tasks",
       srun_task_2_of_4 + "TUTTI_RENDEZVOUS=file:///shared/meet?world_size=2",
       {"world_size=2", "SLURM_STEP_NUM_TASKS=\"4\"", "leave rank and world_size out"}},
      {"a URL with a node for a task",
       srun_task_2_of_4 + "TUTTI_RENDEZVOUS=file:///shared/meet?rank=1",
       {"rank=1", "SLURM_PROCID=\"2\""}},
      {"a task's rank in a world of nodes",
       srun_task_0_of_4 + "TUTTI_RANK=0 TUTTI_WORLD_SIZE=2 TUTTI_RENDEZVOUS=file:///shared/meet",
       {"size 2, which is SLURM_STEP_NUM_NODES=\"2\"", "rank 0, which is SLURM_PROCID=\"0\"",
        "SLURM_STEP_NUM_TASKS=\"4\"", "size 4"}},
      {"the same in a URL",
       srun_task_0_of_4 + "TUTTI_RENDEZVOUS=file:///shared/meet?rank=0&world_size=2",
       {"SLURM_STEP_NUM_NODES=\"2\"", "SLURM_PROCID=\"0\"", "SLURM_STEP_NUM_TASKS=\"4\""}},
      {"worlds of one agent",
       srun_task_2_of_4 + torchrun_static + " GROUP_WORLD_SIZE=1",
       {"GROUP_WORLD_SIZE=\"1\"", "SLURM_STEP_NUM_TASKS=\"4\"", "--nnodes", "SLURM_STEP_ID"}},
      {"localhost on two nodes",
       srun_task_2_of_4 + "MASTER_ADDR=localhost MASTER_PORT=1",
       {"MASTER_ADDR=\"localhost\"", "4 ranks with 2 on this machine", "rank 0's machine"}},
      {"localhost by hand",
       srun_task_2_of_4 + "RANK=2 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=1",
       {"MASTER_ADDR=\"127.0.0.1\""}},
      {"localhost under mpirun", open_mpi_in_slurm + "MASTER_ADDR=::1 MASTER_PORT=1", {"MASTER_ADDR=\"::1\""}},
      {"sbatch without srun", batch_4, {"SLURM_NTASKS=\"4\"", "start the program with srun", "TUTTI_RANK=0"}},
      {"salloc without srun", salloc_4, {"SLURM_NTASKS=\"4\"", "SLURM_STEP_ID"}},
      {"two nodes without srun", "SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2", {"SLURM_JOB_NUM_NODES=\"2\""}},
      {"a step without a rank", "SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_NTASKS=2", {"without SLURM_PROCID", "container"}},
      {"a step without a size", "SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_PROCID=0", {"without SLURM_STEP_NUM_TASKS"}},
      {"rank without size", "RANK=0", {"RANK=\"0\" without WORLD_SIZE", "set both"}},
      {"size without rank", "WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", {"WORLD_SIZE=\"2\" without RANK"}},
      {"half of tutti", "TUTTI_RANK=0 RANK=0 WORLD_SIZE=1", {"TUTTI_RANK=\"0\" without TUTTI_WORLD_SIZE"}},
      {"half of PMI", "PMI_SIZE=2", {"PMI_SIZE=\"2\" without PMI_RANK"}},
      {"rank beyond the world",
       "RANK=2 WORLD_SIZE=2",
       {"RANK=\"2\" is not below WORLD_SIZE=\"2\" (set by hand); correct what sets them"}},
      {"local rank beyond", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1", {"LOCAL_RANK=\"1\" is not below"}},
      {"more here than there are", "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", {"LOCAL_WORLD_SIZE=\"3\" is more than"}},
      {"no rendezvous",
       "RANK=0 WORLD_SIZE=2",
       {"RANK=\"0\"", "WORLD_SIZE=\"2\"", "set MASTER_ADDR", "TUTTI_RENDEZVOUS="}},
      {"no rendezvous, one machine", "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 LOCAL_RANK=0", {"set TUTTI_JOB"}},
      {"tutti without rendezvous", "TUTTI_RANK=0 TUTTI_WORLD_SIZE=2", {"TUTTI_RANK=\"0\"", "TUTTI_RENDEZVOUS=tcp://"}},
      {"mpirun across machines",
       open_mpi_in_slurm,
       {"OMPI_COMM_WORLD_SIZE=\"4\"", "set MASTER_ADDR", "mpirun -x MASTER_ADDR=host -x MASTER_PORT="}},
      {"mpiexec across machines",
       hydra_in_slurm,
       {"PMI_SIZE=\"4\"", "set MASTER_ADDR", "mpiexec -genv MASTER_ADDR host -genv MASTER_PORT "}},
      {"hydra has no job", hydra, {"all ranks are on this machine", "set TUTTI_JOB", "mpiexec -genv TUTTI_JOB name"}},
      {"no port", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", {"MASTER_ADDR=\"a\" without MASTER_PORT"}},
      {"no node list", "SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=2", {"set MASTER_ADDR"}},
      {"a broken node list", srun_task_2_of_4 + "SLURM_STEP_NODELIST=node[1-", {"node[1-", "brackets"}},
      {"a job without a number", srun_task_2_of_4 + "SLURM_JOB_ID=x", {"SLURM_JOB_ID=\"x\"", "set MASTER_PORT"}},
      {"a bad address", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a/b MASTER_PORT=1", {"MASTER_ADDR=\"a/b\""}},
      {"port 0", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", {"MASTER_PORT=\"0\""}},
      {"the last port is the agent's",
       torchrun_static + "MASTER_PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True",
       {"MASTER_PORT=\"65535\"", "65534"}},
      {"a service of Kubernetes",
       "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=tcp://10.0.0.1:1",
       {"tcp://10.0.0.1:1"}},
      {"a bad URL",
       "RANK=0 WORLD_SIZE=2 TUTTI_RENDEZVOUS=node1:29500",
       {"TUTTI_RENDEZVOUS", "node1:29500", "tcp://host"}},
  };
  for (const refused& r : table) {
    CAPTURE(r.name);
    const std::string why = refusal(variables(r.text));
    for (const char* part : r.says) {
      CAPTURE(part);
      CHECK_MESSAGE(why.find(part) != std::string::npos, why);
    }
  }
}

TEST_CASE("environment: only plain decimal numbers in range are numbers") {
  for (const char* value :
       {"", " 1", "1 ", "+1", "-1", "0x1", "1.0", "one", "1e0", "2147483648", "99999999999999999999"})
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
      CAPTURE(value);
      CAPTURE(name);
      variables v("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1");
      v.set(name, value);
      const std::string why = refusal(v);
      CHECK_MESSAGE(why.find(name + std::string("=\"") + value + "\"") != std::string::npos, why);
    }
  CHECK(read("RANK=0 WORLD_SIZE=2147483647 MASTER_ADDR=a MASTER_PORT=65535")->world_size == 2147483647);
  CHECK(refusal(variables("RANK=0 WORLD_SIZE=0")).find("WORLD_SIZE=\"0\"") != std::string::npos);
  variables nasty("WORLD_SIZE=2");
  nasty.set("RANK", "\x1b[31m" + std::string(5000, 'x'));
  CHECK(refusal(nasty).size() < 400);
  CHECK(refusal(nasty).find('\x1b') == std::string::npos);
}

TEST_CASE("environment: TUTTI_* are believed whatever else is there") {
  const std::string own = "TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 TUTTI_JOB=j TUTTI_RENDEZVOUS=tcp://a:1 ";
  for (const std::string other : {"RANK=x WORLD_SIZE=-", "RANK=1 WORLD_SIZE=2 MASTER_PORT=x", "SLURM_STEP_ID=0",
                                  "PMI_RANK=9 PMI_SIZE=", "OMPI_COMM_WORLD_RANK=5"}) {
    CAPTURE(other);
    std::optional<tutti::launch> found;
    REQUIRE_NOTHROW(found = read(own + other));
    CHECK(found->rank == 1);
    CHECK(to_string(found->rendezvous) == "tcp://a:1");
  }
}

TEST_CASE("environment: a world of one needs no rendezvous") {
  CHECK(read("RANK=0 WORLD_SIZE=1")->rendezvous == tutti::rendezvous_url{});
  CHECK(read("RANK=0 WORLD_SIZE=1 MASTER_ADDR=a")->rendezvous == tutti::rendezvous_url{});
  CHECK(read("PMI_RANK=0 PMI_SIZE=1")->rendezvous == tutti::rendezvous_url{});
  CHECK(to_string(read("RANK=0 WORLD_SIZE=1 TUTTI_RENDEZVOUS=tcp://a:1")->rendezvous) == "tcp://a:1");
}

TEST_CASE("environment: a local rendezvous is a valid name, its own for every job and user") {
  std::set<std::string> names;
  const std::string base = "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2";
  const std::string longer(300, 'j');
  for (const std::string& job : {std::string("a b"), std::string("a_b"), std::string("a?b"), longer, longer + "k",
                                 longer + "l", std::string(64, 'j'), std::string("\xc3\xa9")})
    for (const std::uint32_t user : {0u, 1000u, 4294967295u}) {
      variables v(base);
      v.set("TUTTI_JOB", job);
      const auto found = tutti::read_environment(v, user);
      REQUIRE(found);
      CHECK(found->job == job);
      const auto& url = found->rendezvous;
      CHECK(url.kind == tutti::rendezvous_url::scheme::unix_abstract);
      CHECK(url.path.starts_with("tutti-" + std::to_string(user) + "-"));
      CHECK(names.insert(to_string(url)).second);
    }
  variables v(base);
  v.set("TUTTI_JOB", "");
  CHECK(refusal(v).find("TUTTI_JOB is empty") != std::string::npos);
}

TEST_CASE("environment: the docs have all variables of tutti that are read, and no others") {
  namespace fs = std::filesystem;
  const auto text_of = [](const fs::path& file) {
    std::ifstream in(file);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const auto names = [](const std::string& text, const std::string& before) {
    std::set<std::string> all;
    for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
      const std::size_t first = at + before.size() - 6;  // of TUTTI_
      all.insert(text.substr(first, text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", first) - first));
    }
    all.erase("TUTTI_");  // all of them
    return all;
  };
  std::string sources;
  for (const char* folder : {"/include/tutti/bootstrap", "/tools/tutti-run"})
    for (const auto& file : fs::recursive_directory_iterator(std::string{TUTTI_SOURCE_DIR} + folder))
      if (file.is_regular_file()) sources += text_of(file.path());
  CHECK(names(sources, "\"TUTTI_") == names(text_of(TUTTI_SOURCE_DIR "/docs/environment.md"), "TUTTI_"));
}

TEST_CASE("environment: the process's own environment") {
  CHECK(tutti::process_variable("TUTTI_NO_SUCH_VARIABLE") == std::nullopt);
  CHECK(tutti::process_variable("PATH").has_value() == (std::getenv("PATH") != nullptr));
}
