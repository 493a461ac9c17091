#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher.hpp"

namespace {

using namespace tutti_test::launcher;

std::string value_of(const std::string& out, int rank, const std::string& name) {
  const std::string start = "[" + std::to_string(rank) + "] " + name + "=";
  for (const auto& line : lines_of(out))
    if (line.starts_with(start)) return line.substr(start.size());
  return "(unset)";
}

// The secrets of a job whose ranks print "secret", what it holds and where it lies.
std::multiset<std::string> secrets_of(const std::string& out) {
  std::multiset<std::string> found;
  for (const auto& line : lines_of(out))
    if (const auto at = line.find("secret "); at != std::string::npos) found.insert(line.substr(at));
  return found;
}

const std::string tell_secret = "echo secret $(od -An -v -tx1 $TUTTI_SECRET_FILE) $TUTTI_SECRET_FILE\n";

}  // namespace

TEST_CASE("run/environment: every rank finds its place and all find the same job") {
  const auto done = run({"-n", "3", "env"});
  CHECK(done.status == 0);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(value_of(done.out, rank, "RANK") == std::to_string(rank));
    CHECK(value_of(done.out, rank, "LOCAL_RANK") == std::to_string(rank));
    CHECK(value_of(done.out, rank, "WORLD_SIZE") == "3");
    CHECK(value_of(done.out, rank, "LOCAL_WORLD_SIZE") == "3");
    CHECK(value_of(done.out, rank, "GROUP_RANK") == "0");
    CHECK(value_of(done.out, rank, "MASTER_ADDR") == "127.0.0.1");
    CHECK(value_of(done.out, rank, "MASTER_PORT") == value_of(done.out, 0, "MASTER_PORT"));
    const auto job = value_of(done.out, rank, "TUTTI_JOB");
    CHECK(job.size() == 32);
    CHECK(job.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(job == value_of(done.out, 0, "TUTTI_JOB"));
    CHECK(value_of(done.out, rank, "TUTTI_RENDEZVOUS") == "unix:@tutti-" + job);
    CHECK(value_of(done.out, rank, "TUTTI_REPORT_FD") != "(unset)");
  }
  CHECK(std::stoi(value_of(done.out, 0, "MASTER_PORT")) > 0);
  CHECK(value_of(run({"-n", "1", "--output", "prefix", "env"}).out, 0, "TUTTI_JOB") !=
        value_of(done.out, 0, "TUTTI_JOB"));
}

TEST_CASE("run/environment: another launcher's variables do not reach the ranks, the user's own do") {
  const auto done = run({"-n", "2", "--env", "MINE=a=b", "--env", "MASTER_PORT=4242", "--env", "EMPTY=", "env"}, [] {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "PMI_RANK",        "PMIX_RANK",           "SLURM_PROCID",      "SLURM_LOCALID",
          "SLURM_NTASKS",         "HOROVOD_RANK",    "TORCHELASTIC_RUN_ID", "ROLE_RANK",         "RANK",
          "WORLD_SIZE",           "TUTTI_JOB",       "TUTTI_SECRET_FD",     "TUTTI_SECRET_FILE", "SLURM_STEP_ID",
          "SLURM_STEPID",         "TUTTI_REPORT_FD", "TUTTI_RANK",          "TUTTI_WORLD_SIZE",  "TUTTI_LOCAL_RANK",
          "TUTTI_LOCAL_SIZE"})
      ::setenv(name, "77", 1);
    ::setenv("SLURM_JOB_ID", "12", 1);
  });
  CHECK(done.status == 0);
  CHECK(!contains(done.out, "=77"));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(value_of(done.out, rank, "SLURM_JOB_ID") == "12");
    CHECK(value_of(done.out, rank, "MINE") == "a=b");
    CHECK(value_of(done.out, rank, "EMPTY").empty());
  }
  CHECK(job::occurrences(done.out, "MASTER_PORT=") == 2);
  CHECK(value_of(done.out, 1, "MASTER_PORT") == "4242");
}

TEST_CASE("run/environment: PATH from --env is the one that finds the program") {
  CHECK(run({"-n", "2", "--env", "PATH=/nowhere", "ls"}).status == 127);
}

TEST_CASE("run/environment: ranks inherit no descriptor but those made for them") {
  // The shell opens a folder while it expands the pattern; that one is gone when the loop comes to it.
  const auto done =
      run(script({"-n", "3"},
                 "for fd in /proc/$$/fd/*; do if [ -e $fd ]; then echo fd ${fd##*/} $(readlink $fd); fi; done"),
          [] {
            ::dup2(1, 42);
            ::dup2(1, 17);
          });
  CHECK(done.status == 0);
  std::multiset<std::string> seen;
  for (const auto& line : lines_of(done.out))
    if (numbers_after(line, "fd").front() > STDERR_FILENO) seen.insert(line.substr(0, line.find(' ', 7)));
  // The launcher sees it close.
  CHECK(seen == std::multiset<std::string>{"[0] fd 1023", "[1] fd 1023", "[2] fd 1023"});
}

TEST_CASE("run/environment: every rank reads the secret, whatever descriptors a wrapper has closed; nobody else can") {
  for (const std::string wrapped : {"", "exec 3>&1\n", "exec 3<&- 4<&- 5<&-\n"}) {
    CAPTURE(wrapped);
    const auto done = run(script({"-n", "3"}, wrapped + tell_secret + "stat -c 'mode %a' $TUTTI_SECRET_FILE\n" +
                                                  "stat -c 'folder %a' ${TUTTI_SECRET_FILE%/*}"));
    const auto secrets = secrets_of(done.out);
    REQUIRE(secrets.size() == 3);
    CHECK(secrets.count(*secrets.begin()) == 3);
    const std::string path = secrets.begin()->substr(secrets.begin()->rfind(' ') + 1);
    CHECK(secrets.begin()->size() == std::string{"secret"}.size() + 32 * 3 + 1 + path.size());
    CHECK(!contains(*secrets.begin(), "00 00 00 00"));
    CHECK(job::occurrences(done.out, "mode 600") == 3);
    CHECK(job::occurrences(done.out, "folder 700") == 3);
    CHECK(!std::filesystem::exists(std::filesystem::path{path}.parent_path()));
  }
}

TEST_CASE("run/environment: the secret's file ends with the job, however that ends") {
  enum class end { failure, signal, guard_killed, supervisor_killed };
  for (const end how : {end::failure, end::signal, end::guard_killed, end::supervisor_killed}) {
    job running{
        script({"-n", "2"}, tell_secret + (how == end::failure ? "exit 3" : "echo keeper $PPID; exec sleep 1000"))};
    running.await(how == end::failure ? "secret" : "keeper", 2);
    const auto secret = *secrets_of(running.out()).begin();
    const std::filesystem::path folder = std::filesystem::path{secret.substr(secret.rfind(' ') + 1)}.parent_path();
    if (how == end::signal) running.signal(SIGTERM);
    if (how == end::guard_killed) running.signal(SIGKILL);
    if (how == end::supervisor_killed) ::kill(numbers_after(running.out(), "keeper").front(), SIGKILL);
    running.wait();
    CHECK(eventually([&] { return !std::filesystem::exists(folder); }));
  }
}

TEST_CASE("run/environment: the next job removes the secret of one that was killed as a whole, and of no other") {
  const tutti_test::temporary_directory folder;
  const auto here = [&] { ::setenv("TMPDIR", folder.path().c_str(), 1); };
  const auto left = [&] {
    return std::distance(std::filesystem::directory_iterator{folder.path()}, std::filesystem::directory_iterator{});
  };
  job living{script({"-n", "1"}, "echo file $TUTTI_SECRET_FILE .; exec sleep 1000"), here};
  living.await(" .\n");
  const std::string begin = "[0] file ";
  const std::string file = living.out().substr(begin.size(), living.out().find(" .\n") - begin.size());
  job killed{script({"-n", "1"}, "echo keeper $PPID .; exec sleep 1000"), here};
  killed.await(" .\n");
  killed.signal(SIGSTOP);  // so that neither can notice the other's end
  ::kill(numbers_after(killed.out(), "keeper").front(), SIGKILL);
  killed.signal(SIGKILL);
  killed.wait();
  CHECK(left() == 2);
  CHECK(run({"-n", "1", "true"}, here).status == 0);
  CHECK(left() == 1);
  CHECK(std::filesystem::exists(file));
}

TEST_CASE("run/environment: a folder that does not take the secret is passed over") {
  const auto done = run(script({"-n", "2"}, "echo file ${TUTTI_SECRET_FILE-none}"), [] {
    ::setenv("TMPDIR", "/nowhere", 1);
    ::unsetenv("XDG_RUNTIME_DIR");
  });
  CHECK(done.status == 0);
  CHECK(job::occurrences(done.out, "file /tmp/tutti-run-") == 2);
}

TEST_CASE("run/environment: signals and limits are as the caller had them") {
  const auto done = run(script({"-n", "2"}, "grep -E '^Sig(Blk|Ign)' /proc/self/status; echo files $(ulimit -n)"), [] {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGCHLD, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
    const rlimit small{40, 500};
    ::setrlimit(RLIMIT_NOFILE, &small);
  });
  CHECK(done.status == 0);
  CHECK(job::occurrences(done.out, "SigBlk:\t0000000000000000") == 2);
  CHECK(job::occurrences(done.out, "SigIgn:\t0000000000000001") == 2);
  CHECK(job::occurrences(done.out, "files 40") == 2);
}

TEST_CASE("run/environment: rank 0 has the launcher's stdin, the others have none") {
  const auto done = run(script({"-n", "3"}, "cat; echo end"), [] {
    int ends[2];
    if (::pipe(ends) != 0 || ::write(ends[1], "typed\n", 6) != 6) ::_exit(98);
    ::dup2(ends[0], 0);
    ::close(ends[1]);
  });
  CHECK(sorted_lines(done.out) == std::multiset<std::string>{"[0] typed", "[0] end", "[1] end", "[2] end"});
}

TEST_CASE("run/environment: --bind core gives each rank one CPU, in turn") {
  const auto done = run(script({"-n", "4", "--bind", "core"}, "grep Cpus_allowed_list /proc/self/status"));
  CHECK(done.status == 0);
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  std::vector<std::size_t> cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  std::multiset<std::string> expected;
  for (std::size_t rank = 0; rank < 4; ++rank)
    expected.insert("[" + std::to_string(rank) + "] Cpus_allowed_list:\t" + std::to_string(cpus[rank % cpus.size()]));
  CHECK(sorted_lines(done.out) == expected);
}

TEST_CASE("run/environment: --bind numa gives each rank CPUs that are allowed here, and on one node all of them") {
  const auto own = [] {
    std::ifstream file{"/proc/self/status"};
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("Cpus_allowed_list:")) return line;
    return std::string{};
  }();
  const auto done = run(script({"-n", "2", "--bind", "numa"}, "grep Cpus_allowed_list /proc/self/status"));
  CHECK(done.status == 0);
  REQUIRE(lines_of(done.out).size() == 2);
  if (!std::filesystem::exists("/sys/devices/system/node/node1"))
    CHECK(sorted_lines(done.out) == std::multiset<std::string>{"[0] " + own, "[1] " + own});
}

TEST_CASE("run/environment: --devices gives each rank its own GPU, out of those that the launcher was given") {
  const auto seen = [](std::vector<std::string> how, const char* inherited) {
    for (const char* more : {"--", "sh", "-c", "echo CUDA=${CUDA_VISIBLE_DEVICES-unset}"}) how.emplace_back(more);
    const auto done = run(how, [inherited] {
      if (inherited)
        ::setenv("CUDA_VISIBLE_DEVICES", inherited, 1);
      else
        ::unsetenv("CUDA_VISIBLE_DEVICES");
    });
    CHECK(done.err.empty());
    return value_of(done.out, 0, "CUDA") + " " + value_of(done.out, 1, "CUDA");
  };
  CHECK(seen({"-n", "2"}, nullptr) == "unset unset");
  CHECK(seen({"-n", "2"}, "3,4") == "3,4 3,4");
  CHECK(seen({"-n", "2", "--devices", "4,6"}, nullptr) == "4 6");
  CHECK(seen({"-n", "2", "--devices", "3, 1,0"}, nullptr) == "3 1");
  CHECK(seen({"-n", "2", "--devices", "GPU-8d4f,MIG-1a"}, nullptr) == "GPU-8d4f MIG-1a");
  CHECK(seen({"-n", "2", "--devices", "1,0"}, "4,7") == "7 4");
  CHECK(seen({"-n", "2", "--devices", "2,0"}, "GPU-a, GPU-b,GPU-c") == "GPU-c GPU-a");
  CHECK(seen({"-n", "2", "--devices", "GPU-c,GPU-a"}, "GPU-a1,GPU-b1,GPU-c1") == "GPU-c GPU-a");
  CHECK(seen({"-n", "2", "--devices", "0,1", "--env", "CUDA_VISIBLE_DEVICES=5,6"}, "8,9") == "5 6");
}
