#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "process/machines.hpp"
#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

using namespace tutti_test;

namespace {

const std::string doctor = TUTTI_TOOL_DIR "/tutti-doctor";

/// Runs a script of the shell, in which "$@" starts the doctor on `ranks` ranks.
processes::report examine(int ranks, const std::string& script, std::vector<std::string> words = {},
                          std::vector<std::string> environment = {}) {
  std::vector<std::string> arguments{"-c", script, "sh", tutti_run(), "-n", std::to_string(ranks), "--", doctor};
  arguments.insert(arguments.end(), words.begin(), words.end());
  processes all;
  all.start({"/bin/sh", arguments, environment});
  return all.wait()[0];
}

void check_says(const processes::report& r, int status, const std::vector<std::string>& parts) {
  CAPTURE(r.out);
  CHECK(r.status == status);
  for (const std::string& part : parts) CHECK_MESSAGE(contains(r.out, part), part);
}

bool works(const std::string& script) {
  processes one;
  one.start({"/bin/sh", {"-c", script}, {}});
  const bool good = one.wait().front().status == 0;
  if (!good) MESSAGE("skipped: not permitted here: " << script);
  return good;
}

TEST_CASE("doctor: three ranks of tutti-run, by memory and by TCP, as tables and as JSON") {
  check_says(examine(3, "exec \"$@\""), 0,
             {"3 ranks, by tutti-run", "rendezvous unix:@tutti-", "\n[0] 0-1    memory  ", "\n[0] 1-2    memory  ",
              "memory only", "file, mode 0600", "0 errors, "});
  check_says(examine(3, "exec \"$@\"", {"--json"}, {"TUTTI_TRANSPORT=tcp"}), 0,
             {"\"ok\": true", "\"memory\": false", "\"address\": \"127.0.0.1:", "\"chosen_interface\": \"lo\""});
  processes alone;
  alone.start({doctor, {}, {}});
  check_says(alone.wait()[0], 0, {"1 rank, no launcher", "memory only"});
}

TEST_CASE("doctor: a secret that comes through a pipe, and a launcher inside a rank of tutti-run") {
  const std::string place = "TUTTI_RENDEZVOUS=unix:@" + unique_name();
  processes both;
  for (const std::string rank : {"0", "1"})
    both.start({"/bin/sh",
                {"-c", "printf %064d 1 | exec \"$0\"", doctor},
                {place, "TUTTI_WORLD_SIZE=2", "TUTTI_RANK=" + rank, "TUTTI_SECRET_FD=0", "TUTTI_TRANSPORT=tcp"}});
  check_says(both.wait()[0], 0, {"2 ranks", "descriptor", "nothing found"});
  const std::string inside =
      "exec \"$1\" -n 1 -- env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
      "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=a \"$5\"";
  const auto nested = examine(1, inside);
  check_says(nested, 0, {"OMPI_COMM_WORLD_RANK"});
  CHECK_FALSE(contains(nested.out, "by tutti-run"));
}

TEST_CASE("doctor: a limit of open files is an error, with its remedy") {
  check_says(examine(3, "ulimit -Sn 100; exec \"$@\""), 1,
             {"ERROR    ranks 0-2 (", "may open 100 files, too few for connections to 3 ranks", "-> ulimit -n 65536"});
}

TEST_CASE("doctor: a small /dev/shm is a warning, with its remedy") {
  const std::string small = "mount -t tmpfs -o size=1m tmpfs /dev/shm";
  if (!works("exec unshare -m sh -c '" + small + "'")) return;
  check_says(examine(2, "exec unshare -m sh -c '" + small + "; exec \"$@\"' sh \"$@\""), 0,
             {"warning  ranks 0-1 (", "/dev/shm has 1 MiB free", "-> start the container with --shm-size=1g"});
}

TEST_CASE("doctor: a world that does not come to be is reported by each rank, with what it knows") {
  temporary_directory folder;
  const std::string secret = folder.file("secret");
  std::ofstream{secret} << std::string(64, '1');
  ::chmod(secret.c_str(), 0644);
  check_says(examine(2, "export TUTTI_TRANSPORT=tcp; run=$1; shift; exec \"$run\" --env TUTTI_SECRET_FILE=" + secret +
                            " \"$@\""),
             1,
             {"could not examine the job", "ERROR    rank 0 (", "ERROR    rank 1 (", "others may read it (chmod 600",
              "-> make it once, (umask 077; "});
  processes alone;
  alone.start({doctor,
               {"--join-timeout", "0.3"},
               {"TUTTI_RANK=1", "TUTTI_WORLD_SIZE=2", "TUTTI_RENDEZVOUS=unix:@" + unique_name()}});
  check_says(alone.wait()[0], 1, {"rank 1 (", "of 2 could not examine the job", "-> docs/rendezvous.md"});
  processes misspelt;
  misspelt.start({doctor, {"--jsn"}, {}});
  CHECK(misspelt.wait()[0].status == 2);
}

TEST_CASE("doctor: two machines, their link and clock, and an address that the other cannot reach") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  temporary_directory folder;
  const std::string secret = folder.file("secret");
  std::ofstream{secret} << std::string(64, '1');
  ::chmod(secret.c_str(), 0600);
  for (const int n : {0, 1}) pair.set_hosts(n, "127.0.0.1 localhost\n");
  const auto both = [&](const std::string& interface) {
    processes all;
    for (const int r : {0, 1}) {
      std::vector<std::string> environment{"TUTTI_RENDEZVOUS=tcp://10.77.0.1:29533", "TUTTI_SECRET_FILE=" + secret,
                                           "TUTTI_WORLD_SIZE=2", "TUTTI_RANK=" + std::to_string(r)};
      if (r == 1 && !interface.empty()) environment.push_back("TUTTI_INTERFACE=" + interface);
      all.start(pair.run(r, doctor, {}, environment));
    }
    return all.wait();
  };
  const auto well = both("");
  check_says(well[0], 0,
             {"cable0*", "10.77.0.2:", "0-1    TCP  ", "rank  host   clock", "1     node1  ", "nothing found"});
  CHECK(well[1].out.empty());
  CHECK(well[1].status == 0);

  pair.run_on(1, "ip addr add 10.88.0.1/24 dev cable1");
  const auto lost = both("10.88.0.1");
  check_says(lost[0], 1,
             {"could not examine the job", "cannot connect to rank 1 at 10.88.0.1:", "unreachable",
              "-> let TCP through between the machines"});
  CHECK(lost[1].status == 1);
}

}  // namespace
