#include "process/machines.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <tutti/core/status.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "process/worlds.hpp"
#include "support/grid.hpp"
#include "support/temporary_directory.hpp"

// What differs between machines: names, addresses, namespaces, what is mounted.
namespace {

using namespace tutti_test;

const std::string own_loopback = "127.0.0.1 localhost\n127.0.1.1 node0\n";  // as Debian writes it
const std::string known = "127.0.0.1 localhost\n10.77.0.1 node0\n";

/// A command behind a program that changes the namespaces or the mounts of what it starts; root only.
command behind(const std::string& script, const std::string& name, std::vector<std::string> words) {
  std::vector<std::string> arguments{"-c", script, "sh", program(name)};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return {"/bin/sh", std::move(arguments), {}};
}

bool works(const std::string& script) {
  processes one;
  one.start({"/bin/sh", {"-c", script, "sh", "true"}, {}});
  const bool good = one.wait().front().status == 0;
  if (!good) MESSAGE("skipped: not permitted here: " << script);
  return good;
}

}  // namespace

TEST_CASE("rank 0 is reached on a machine whose own name is 127.0.1.1 there") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  pair.set_hosts(0, own_loopback);
  pair.set_hosts(1, known);
  temporary_directory folder;
  const std::string secret = folder.file("secret"), url = "tcp://node0:29511";
  std::ofstream{secret} << std::string(64, '1');
  ::chmod(secret.c_str(), 0600);
  {
    processes all;
    for (const int r : {0, 1, 2})
      all.start(pair.on(r == 2 ? 1 : 0, "join", {at(url, r, 3), "secret=" + secret, "times=2"}));
    check_joined(all.wait(), 3, 2);
  }
  SUBCASE("without a secret rank 0 names the cause when ranks are absent") {
    processes all;
    for (const int r : {0, 1}) all.start(pair.on(r, "join", {at(url, r, 2), "join=2000"}));
    const auto reports = all.wait();
    for (const std::string part : {"absent: 1", "takes node0 for 127.0.1.1:29511", "/etc/hosts"})
      CHECK_MESSAGE(contains(reports[0].out, part), reports[0].out);
    CHECK_MESSAGE(contains(reports[1].out, "refusing to listen"), reports[1].out);
  }
  SUBCASE("and is refused at once where the launcher knows of other machines") {
    processes all;
    for (const std::string r : {"0", "1", "2"})
      all.start(
          pair.on(r == "2" ? 1 : 0, "join", {"join=200000"},
                  {"TUTTI_RANK=" + r, "TUTTI_WORLD_SIZE=3", "TUTTI_LOCAL_RANK=" + std::string(r == "1" ? "1" : "0"),
                   "TUTTI_LOCAL_SIZE=" + std::string(r == "2" ? "1" : "2"), "TUTTI_RENDEZVOUS=" + url}));
    const auto reports = all.wait();
    check_refused(reports, static_cast<int>(tutti::errc::auth_failed), {"without a secret", "TUTTI_SECRET_FILE"});
    CHECK_MESSAGE(contains(reports[0].out, "takes node0 for 127.0.1.1:29511"), reports[0].out);
    CHECK_MESSAGE(contains(reports[1].out, "listen on node0:29511"), reports[1].out);
  }
  SUBCASE("alone on its machine it needs neither") {
    processes all;
    for (const int r : {0, 1}) all.start(pair.on(0, "join", {at(url, r, 2), "transport=tcp"}));
    check_joined(all.wait(), 2);
  }
}

TEST_CASE("ranks that meet at a file find the addresses of their machines by the names of the others") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  pair.set_hosts(0, own_loopback + "10.77.0.2 node1\n");
  pair.set_hosts(1, known + "127.0.1.1 node1\n");
  temporary_directory folder;
  const std::string secret = folder.file("secret"), url = "file://" + folder.file("meet");
  std::ofstream{secret} << std::string(64, '1');
  ::chmod(secret.c_str(), 0600);
  processes all;
  for (const int r : {0, 1, 2, 3}) all.start(pair.on(r / 2, "join", {at(url, r, 4), "secret=" + secret}));
  check_joined(all.wait(), 4);
}

TEST_CASE(
    "TUTTI_NETWORK=insecure lets a program that is compiled already do without a secret, and rank 0 says so once") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  for (const int n : {0, 1}) pair.set_hosts(n, known);
  const std::string url = "tcp://node0:29514";
  processes all;
  for (const int r : {0, 1}) all.start(pair.on(r, "join", {at(url, r, 2)}, {"TUTTI_NETWORK=insecure"}));
  const auto reports = all.wait();
  check_joined(reports, 2);
  CHECK(occurrences(all_text(reports), "TUTTI_NETWORK=insecure: the ranks of this job listen without a secret") == 1);
  CHECK(contains(reports[0].out, "tutti: warning: TUTTI_NETWORK=insecure"));
  processes wrong;
  for (const int r : {0, 1}) wrong.start(pair.on(r, "join", {at(url, r, 2)}, {"TUTTI_NETWORK=open"}));
  for (const auto& one : wrong.wait()) CHECK_MESSAGE(contains(one.out, "is not guarded or insecure"), one.out);
}

TEST_CASE("rank 0 of a Slurm step hands a secret over in the folder of the job, and leaves nothing there") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  for (const int n : {0, 1}) pair.set_hosts(n, own_loopback);
  pair.set_hosts(1, known);
  const temporary_directory folder;
  const auto task = [&](int r, const std::string& submitted) {
    return pair.on(r, "join", {"times=2", "join=20000"},
                   {"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=" + std::to_string(r), "SLURM_STEP_NUM_TASKS=2",
                    "SLURM_LOCALID=0", "SLURM_NODEID=" + std::to_string(r), "SLURM_STEP_TASKS_PER_NODE=1(x2)",
                    "SLURM_STEP_NODELIST=node[0-1]", "SLURM_SUBMIT_DIR=" + submitted});
  };
  {
    processes all;
    for (const int r : {0, 1}) all.start(task(r, folder.path().string()));
    check_joined(all.wait(), 2, 2);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  SUBCASE("a folder in which rank 0 cannot write") {
    processes all;
    all.start(task(0, folder.file("absent")));
    check_refused(all.wait(), static_cast<int>(tutti::errc::auth_failed),
                  {"cannot hand the secret of this Slurm step over", "before srun: export TUTTI_SECRET_FILE="});
  }
}

TEST_CASE("ranks meet at link-local addresses, each by its own interface") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  for (const int n : {0, 1}) pair.set_hosts(n, known);
  temporary_directory folder;
  const std::string secret = folder.file("secret");
  std::ofstream{secret} << std::string(64, '1');
  ::chmod(secret.c_str(), 0600);
  processes all;
  for (const int r : {0, 1})
    all.start(
        pair.on(r, "join", {at("tcp://[fe80::1%cable" + std::to_string(r) + "]:29512", r, 2), "secret=" + secret}));
  check_joined(all.wait(), 2);
}

TEST_CASE("ranks join without /proc") {
  const std::string hidden = "exec unshare -m sh -c 'mount -t tmpfs none /proc; exec \"$@\"' sh \"$@\"";
  if (slow) MESSAGE("skipped: sanitizers need /proc");
  if (slow || !works(hidden)) return;
  const std::string url = "unix:@" + unique_name();
  for (const std::string transport : {"transport=shm", "transport=tcp"}) {
    processes all;
    for (const int r : {0, 1, 2}) all.start(behind(hidden, "join", {at(url, r, 3), transport}));
    check_joined(all.wait(), 3);
  }
  processes one_without;
  one_without.start({program("join"), {at(url, 0, 2)}, {}});
  one_without.start(behind(hidden, "join", {at(url, 1, 2)}));
  check_joined(one_without.wait(), 2);
}

TEST_CASE("ranks in pid namespaces of their own meet at a Unix socket") {
  const std::string apart = "exec unshare -pf --mount-proc \"$@\"";
  if (!works(apart)) return;
  const std::string url = "unix:@" + unique_name();
  processes all;
  all.start({program("join"), {at(url, 0, 3)}, {}});
  for (const int r : {1, 2}) all.start(behind(apart, "join", {at(url, r, 3)}));
  check_joined(all.wait(), 3);
}
