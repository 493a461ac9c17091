#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace tutti_test;

std::vector<std::string> by_hand(int rank, int world) {
  return {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world)};
}

/// The program that this rank has started with its own variables was told whose place it has, `times` times, but may be
/// a world of its own.
void check_child_refused(const std::string& text, int rank, int times = 1) {
  CAPTURE(text);
  CHECK(occurrences(text, "usage rank " + std::to_string(rank) + " of this job is process ") == times);
  CHECK(occurrences(text, "the child ended with 2") == times);
  CHECK(occurrences(text, "the child that is a world of its own ended with 0") == times);
}

}  // namespace

TEST_CASE("processes find each other under every kind of rendezvous, twice in a row") {
  temporary_directory folder;
  const std::string name = unique_name();
  std::string url;
  SUBCASE("tcp") { url = "tcp://127.0.0.1:" + std::to_string(free_port()); }
  SUBCASE("tcp by name") { url = "tcp://localhost:" + std::to_string(free_port()); }
  SUBCASE("file") { url = "file://" + folder.file("meet"); }
  SUBCASE("Unix socket in the file system") { url = "unix:" + folder.file("meet"); }
  SUBCASE("Unix socket without a file") { url = "unix:@" + name; }
  CAPTURE(url);
  check_joined(run_ranks("join", 4, [&](int r) { return rank_words{{at(url, r, 4), "times=2"}, {}}; }), 4, 2);
  CHECK(std::filesystem::is_empty(folder.path()));
  check_nothing_left(name);
}

TEST_CASE("ranks come in any order") {
  const std::string name = unique_name();
  const auto all = run_ranks("join", 3, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 3), "late=" + std::to_string(150 * (2 - r))}, {}};
  });
  check_joined(all, 3);
}

TEST_CASE("the environment alone is enough") {
  const std::string name = unique_name();
  const std::string port = std::to_string(free_port());
  const int n = 3;
  const std::string size = std::to_string(n);
  std::function<std::vector<std::string>(int)> environment;
  bool own_rendezvous = true;  // the launcher names a rendezvous that no other job of this machine has
  SUBCASE("RANK, WORLD_SIZE and a master") {
    own_rendezvous = false;
    environment = [&](int r) {
      auto e = by_hand(r, n);
      e.insert(e.end(), {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port});
      return e;
    };
  }
  SUBCASE("TUTTI_RENDEZVOUS with a query") {
    own_rendezvous = false;
    environment = [&](int r) {
      return std::vector<std::string>{"TUTTI_" + at("unix:@" + name, r, n).replace(0, 10, "RENDEZVOUS")};
    };
  }
  SUBCASE("torchrun, whose own store has the master's port") {
    environment = [&](int r) {
      auto e = by_hand(r, n);
      e.insert(e.end(),
               {"LOCAL_RANK=" + std::to_string(r), "LOCAL_WORLD_SIZE=" + size, "GROUP_RANK=0", "GROUP_WORLD_SIZE=1",
                "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, "TORCHELASTIC_RUN_ID=none",
                "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_USE_AGENT_STORE=True"});
      return e;
    };
  }
  SUBCASE("MPICH's mpiexec, which names no job") {
    own_rendezvous = false;  // its proxy, by which ranks find the job, is not here
    environment = [&](int r) {
      return std::vector<std::string>{"PMI_RANK=" + std::to_string(r), "PMI_SIZE=" + size,
                                      "MPI_LOCALRANKID=" + std::to_string(r), "MPI_LOCALNRANKS=" + size};
    };
  }
  SUBCASE("Open MPI's mpirun") {
    environment = [&](int r) {
      return std::vector<std::string>{"OMPI_COMM_WORLD_RANK=" + std::to_string(r), "OMPI_COMM_WORLD_SIZE=" + size,
                                      "OMPI_COMM_WORLD_LOCAL_RANK=" + std::to_string(r),
                                      "OMPI_COMM_WORLD_LOCAL_SIZE=" + size, "PMIX_NAMESPACE=" + name};
    };
  }
  SUBCASE("srun") {
    environment = [&](int r) {
      return std::vector<std::string>{"SLURM_JOB_ID=" + std::to_string(::getpid()), "SLURM_STEP_ID=0",
                                      "SLURM_PROCID=" + std::to_string(r),          "SLURM_STEP_NUM_TASKS=" + size,
                                      "SLURM_LOCALID=" + std::to_string(r),         "SLURM_NODEID=0",
                                      "SLURM_STEP_TASKS_PER_NODE=" + size};
    };
  }
  check_joined(run_ranks("join", n, [&](int r) { return rank_words{{"times=2"}, environment(r)}; }), n, 2);
  if (own_rendezvous) {
    const auto all =
        run_ranks("join", n, [&](int r) { return rank_words{{"parent=" + std::to_string(n - 1)}, environment(r)}; });
    check_joined(all, n);
    check_child_refused(all_text(all), n - 1);
  }
  check_nothing_left(name);
}

TEST_CASE("without a launcher a process is a world of its own") {
  check_joined(run_ranks("join", 1, [](int) { return rank_words{{"times=3"}, {}}; }), 1, 3);
}

TEST_CASE("tutti-run's ranks join over what they inherit, as often as they like") {
  for (const auto& [transport, encryption] :
       {std::pair{"shm", "tls"}, {"tcp", "none"}, {"tcp", "tls"}, {"automatic", ""}}) {
    CAPTURE(transport);
    CAPTURE(encryption);
    processes all;
    std::vector<std::string> variables{std::string{"TUTTI_TRANSPORT="} + transport};
    if (*encryption != 0) variables.push_back(std::string{"TUTTI_ENCRYPTION="} + encryption);
    all.start(launched(4, "join", {"times=3"}, variables));
    const auto report = all.wait().front();
    CAPTURE(report.out);
    CHECK(report.status == 0);
    CHECK(occurrences(report.out, "sum 15 inherit 0 ") == 12);
  }
  check_nothing_left("tutti-run-leaves-nothing");
}

TEST_CASE("options go before the environment") {
  const std::string name = unique_name();
  const auto all = run_ranks("join", 2, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 2)},
                      {"RANK=7", "WORLD_SIZE=9", "MASTER_ADDR=nowhere.invalid", "MASTER_PORT=1"}};
  });
  check_joined(all, 2);
}

TEST_CASE("ranks of one machine can act as those of several") {
  const std::string name = unique_name();
  const auto all = run_ranks(
      "join", 5, [&](int r) { return rank_words{{at("unix:@" + name, r, 5), "domain=" + std::to_string(r % 2)}, {}}; });
  check_joined(all, 5);
  const std::string text = all_text(all);
  for (const std::string part :
       {"rank 0 of 5 local 0 of 3 node 0", "rank 1 of 5 local 0 of 2 node 1", "rank 2 of 5 local 1 of 3 node 0",
        "rank 3 of 5 local 1 of 2 node 1", "rank 4 of 5 local 2 of 3 node 0"})
    CHECK_MESSAGE(contains(text, part), part << " is not in " << text);
}

TEST_CASE("connections between ranks prove the secret") {
  temporary_directory folder;
  const auto write = [&](const std::string& file, char digit) {
    std::ofstream{folder.file(file)} << std::string(64, digit) << "\n";
    ::chmod(folder.file(file).c_str(), 0600);
  };
  write("right", '1');
  write("wrong", '2');
  const std::string url = "tcp://127.0.0.1:" + std::to_string(free_port());
  const auto join = [&](bool equal) {
    return run_ranks("join", 2, [&](int r) {
      const std::string file = folder.file(r == 1 && !equal ? "wrong" : "right");
      return rank_words{{at(url, r, 2), "transport=tcp", "secret=" + file, "join=1000"}, {}};
    });
  };
  check_joined(join(true), 2);
  const auto refused = join(false);
  const std::string text = all_text(refused);
  CAPTURE(text);
  for (const auto& r : refused) CHECK(r.status == 1);
  CHECK(contains(refused[1].out, "error kind 7 "));
  CHECK(contains(refused[0].out, "absent: 1"));
  CHECK(contains(refused[0].out, "secret"));
}

TEST_CASE("a secret that others can read is refused") {
  temporary_directory folder;
  std::ofstream{folder.file("open")} << std::string(64, '1');
  ::chmod(folder.file("open").c_str(), 0644);
  const std::string url = "unix:@" + unique_name();
  const auto all = run_ranks("join", 2, [&](int r) {
    return rank_words{{at(url, r, 2), "transport=tcp"}, {"TUTTI_SECRET_FILE=" + folder.file("open")}};
  });
  check_refused(all, 7, {"chmod 600"});
  check_joined(
      run_ranks("join", 2,
                [&](int r) { return rank_words{{at(url, r, 2), "transport=shm"}, {"TUTTI_SECRET_FILE=/nowhere"}}; }),
      2);  // which needs none
}

TEST_CASE("tutti-run's ranks join behind a wrapper that closes descriptors or uses their numbers") {
  for (const std::string transport : {"transport=shm", "transport=tcp"})
    for (const std::string wrapper :
         {"exec 3>&1 4>&1\n\"$@\"", "\"$@\" 3<&- 4<&-",
          "command -v python3 >/dev/null || exec \"$@\"\n"
          "python3 -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' \"$@\""}) {
      CAPTURE(wrapper);
      processes all;
      all.start(
          {tutti_run(), {"-n", "3", "--", "/bin/sh", "-c", wrapper, "sh", program("join"), transport, "times=2"}, {}});
      const auto report = all.wait().front();
      CAPTURE(report.out);
      CHECK(report.status == 0);
      CHECK(occurrences(report.out, "sum 7 ") == 6);
    }
}

TEST_CASE("programs one after another in a rank of tutti-run each find their world") {
  processes all;
  all.start({tutti_run(),
             {"-n", "2", "--", "/bin/sh", "-c", "\"$1\" late=$((RANK * 200)) && \"$1\"", "sh", program("join")},
             {}});
  const auto report = all.wait().front();
  CAPTURE(report.out);
  CHECK(report.status == 0);
  CHECK(occurrences(report.out, "sum 3 ") == 4);
}

TEST_CASE("a program that a rank of tutti-run starts is told at once whose place it has inherited") {
  for (const std::string transport : {"transport=shm", "transport=tcp"})
    for (const std::string parent : {"parent=0", "parent=1"}) {
      processes all;
      all.start(launched(2, "join", {transport, parent, "times=2"}));
      const auto report = all.wait().front();
      CAPTURE(report.out);
      CHECK(report.status == 0);
      CHECK(occurrences(report.out, "sum 3 ") == 4);
      check_child_refused(report.out, parent == "parent=0" ? 0 : 1, 2);
    }
}

TEST_CASE("a secret that a wrapper has closed names the wrapper") {
  const std::string url = "unix:@" + unique_name();
  processes all;
  for (int r = 0; r < 2; ++r)
    all.start({"/bin/sh",
               {"-c", "\"$@\" || exit 1", "sh", program("join"), at(url, r, 2), "transport=tcp"},
               {"TUTTI_SECRET_FD=77"}});
  for (const auto& r : all.wait()) {
    CHECK_MESSAGE(contains(r.out, "Bad file descriptor"), r.out);
    CHECK_MESSAGE(contains(r.out, "sh, which started this process"), r.out);
  }
}

TEST_CASE("programs without standard streams lose none of what ranks send each other") {
  for (const std::string transport : {"transport=shm", "transport=tcp"}) {
    const std::string url = "unix:@" + unique_name();
    processes all;
    for (int r = 0; r < 3; ++r)
      all.start({"/bin/sh",
                 {"-c", "exec \"$@\" <&- >&- 2>&-", "sh", program("join"), at(url, r, 3), transport, "times=3"},
                 {}});
    for (const auto& r : all.wait()) CHECK(r.status == 0);
  }
}
