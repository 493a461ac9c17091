#include <doctest/doctest.h>
#include <tutti/bootstrap/launch/inner_environment.hpp>

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <tutti/bootstrap/launch/environment.hpp>

namespace {

/// Variables as `env` prints them, separated by white space; the last of a name counts.
class variables {
 public:
  explicit variables(const std::string& text) {
    std::istringstream words{text};
    for (std::string word; words >> word;) values_[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  std::optional<std::string_view> operator()(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// What rank 1 of `tutti-run -n 2` finds.
const std::string in_tutti_run = R"(RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0
  MASTER_ADDR=127.0.0.1 MASTER_PORT=41000 TUTTI_JOB=0a0b TUTTI_RENDEZVOUS=unix:@tutti-0a0b TUTTI_REPORT_FD=1023 )";

}  // namespace

TEST_CASE("inner_environment: the launcher that a rank of tutti-run starts is believed, the outer world forgotten") {
  struct inner {
    std::string name;
    std::string text;
    const char *job, *rendezvous;
  };
  const inner table[] = {
      {"torchrun", R"(RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 GROUP_RANK=0 GROUP_WORLD_SIZE=1 ROLE_RANK=2
         MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=abc TORCHELASTIC_USE_AGENT_STORE=False)",
       "abc", "tcp://localhost:29500"},
      {"Open MPI", R"(OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2
         OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=ns)",
       "ns", "unix:@tutti-1000-ns"},
      {"MPICH", "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4 PMI_JOBID=p", "p", "unix:@tutti-1000-p"},
      {"horovodrun", R"(HOROVOD_RANK=2 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=2 HOROVOD_LOCAL_SIZE=4
         HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1 HOROVOD_GLOO_RENDEZVOUS_PORT=5)",
       "horovod-10.0.0.1-5", "unix:@tutti-1000-horovod-10.0.0.1-5"},
      {"srun", R"(SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=2 SLURM_NODEID=0
         SLURM_STEP_TASKS_PER_NODE=4)",
       "7.1", "unix:@tutti-1000-7.1"},
      {"mpirun on other machines", R"(OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0
         OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=ns MASTER_ADDR=node07 MASTER_PORT=5)",
       "ns", "tcp://node07:5"},
  };
  for (const inner& want : table) {
    CAPTURE(want.name);
    std::optional<tutti::launch> found;
    REQUIRE_NOTHROW(found = tutti::read_environment(variables(in_tutti_run + want.text), 1000));
    REQUIRE(found);
    CHECK(found->rank == 2);
    CHECK(found->world_size == 4);
    CHECK(found->job == want.job);
    CHECK(to_string(found->rendezvous) == want.rendezvous);
  }
}

TEST_CASE("inner_environment: the same for a rank of tutti-run on several machines") {
  const std::string outer = R"(RANK=1 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_PORT=20600
    TUTTI_JOB=0a0b TUTTI_REPORT_FD=1023 )";
  const std::string inner = R"(OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=2
    OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=ns)";
  for (const std::string place : {"MASTER_ADDR=10.0.0.1 TUTTI_RENDEZVOUS=tcp://10.0.0.1:20500 ",
                                  "MASTER_ADDR=fd00::1 TUTTI_RENDEZVOUS=tcp://[fd00::1]:20500 "}) {
    CAPTURE(place);
    const auto found = tutti::read_environment(variables(outer + place + inner), 1000);
    REQUIRE(found);
    CHECK(found->world_size == 3);
    CHECK(found->job == "ns");
    CHECK(found->by == tutti::launcher::open_mpi);
    CHECK(to_string(found->rendezvous) == "unix:@tutti-1000-ns");
    const auto own = tutti::read_environment(variables(outer + place), 1000);
    REQUIRE(own);
    CHECK(own->rank == 1);
    CHECK(own->job == "0a0b");
    CHECK(own->by == tutti::launcher::tutti_run);
    CHECK(own->rendezvous.port == 20500);
  }
}

TEST_CASE("inner_environment: a rank of tutti-run finds all that it was given") {
  for (const std::string more : {"", "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=4 SLURM_STEP_ID=batch", "PMI_PORT=3"}) {
    CAPTURE(more);
    const variables given{in_tutti_run + more};
    const tutti::detail::inner_environment seen{given};
    for (const char* name : {"RANK", "TUTTI_JOB", "TUTTI_REPORT_FD", "MASTER_PORT"}) CHECK(seen(name) == given(name));
    const auto found = tutti::read_environment(given, 1000);
    REQUIRE(found);
    CHECK(found->rank == 1);
    CHECK(to_string(found->rendezvous) == "unix:@tutti-0a0b");
  }
}

TEST_CASE("inner_environment: what is set by hand stays where it is") {
  const auto explicit_rank = tutti::read_environment(
      variables(in_tutti_run + "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 TUTTI_RANK=0 TUTTI_WORLD_SIZE=2"), 1000);
  REQUIRE(explicit_rank);
  CHECK(explicit_rank->rank == 0);
  CHECK(to_string(explicit_rank->rendezvous) == "unix:@tutti-0a0b");
  const auto explicit_place = tutti::read_environment(
      variables(in_tutti_run + "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 TUTTI_RENDEZVOUS=tcp://a:1"), 1000);
  REQUIRE(explicit_place);
  CHECK(to_string(explicit_place->rendezvous) == "tcp://a:1");
}

TEST_CASE("environment: torchrun is believed beside a step of which a container hides half") {
  const auto found = tutti::read_environment(
      variables("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_WORLD_SIZE=1 MASTER_ADDR=localhost "
                "MASTER_PORT=1 TORCHELASTIC_RUN_ID=x SLURM_JOB_ID=1 SLURM_STEP_ID=0"),
      1000);
  REQUIRE(found);
  CHECK(found->world_size == 1);
}
