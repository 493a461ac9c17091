#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <tutti/core/status.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "process/launch/ssh_machines.hpp"
#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// tutti-run on two machines, by ssh and once on each. TUTTI_TEST_KILLS is how often each thing is killed.
namespace {

using namespace tutti_test;
using namespace std::chrono_literals;

bool skipped(const ssh_machines& machines) {
  if (!machines.why_not().empty()) MESSAGE("skipped: " << machines.why_not());
  return !machines.why_not().empty();
}

std::string example(const std::string& name) { return TUTTI_EXAMPLE_DIR "/" + name; }

int kills() {
  const char* count = std::getenv("TUTTI_TEST_KILLS");
  return count ? std::atoi(count) : 3;
}

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using words = std::vector<std::string>;

words operator+(words first, const words& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

const words both = {"--hosts", "node0:2,node1:2"};

/// One tutti-run; what it says is in one text.
struct job {
  explicit job(const command& what) { all.start(what); }
  [[nodiscard]] bool await(std::string_view text) { return all.await(0, text); }
  [[nodiscard]] const std::string& out() const { return all.out(0); }
  processes::report wait() { return all.wait(90s).front(); }
  processes all;
};

processes::report run(const ssh_machines& machines, const words& arguments, const words& environment = {}) {
  return job{machines.launcher(0, arguments, environment)}.wait();
}

words script(const std::string& text) { return {"--", "/bin/sh", "-c", text}; }

/// A rank that streams collectives after it has said "rank R pid P".
words streaming() { return script("echo rank $RANK pid $$; exec " + program("stream") + " status=7"); }

void await_stream(job& running) {
  for (const int rank : {0, 1, 2, 3}) {
    const std::string line = "[" + std::to_string(rank) + (rank < 2 ? " node0] " : " node1] ") + "streaming";
    REQUIRE_MESSAGE(running.await(line), running.out());
  }
}

::pid_t pid_of(const std::string& out, int rank) {
  const std::string mark = "rank " + std::to_string(rank) + " pid ";
  const auto at = out.find(mark);
  return at == std::string::npos ? 0 : static_cast<::pid_t>(std::atoi(out.c_str() + at + mark.size()));
}

struct ending {
  long long at_us = 0;
  int kind = 0;
  int peer = -1;
};

/// Words of a rank about the failure of its world.
std::optional<ending> ending_of(const std::string& out, int rank) {
  const std::string mark = "[" + std::to_string(rank) + (rank < 2 ? " node0] " : " node1] ") + "ended at ";
  const auto at = out.find(mark);
  ending e;
  if (at == std::string::npos ||
      std::sscanf(out.c_str() + at + mark.size(), "%lld kind %d peer %d", &e.at_us, &e.kind, &e.peer) != 3)
    return std::nullopt;
  return e;
}

class delays {
 public:
  explicit delays(std::string what) : what_(std::move(what)) {}
  ~delays() {
    if (all_.empty()) return;
    std::sort(all_.begin(), all_.end());
    std::printf("%s, %zu times: %.0f ms (median), %.0f ms (most)\n", what_.c_str(), all_.size(),
                static_cast<double>(all_[all_.size() / 2]) / 1000, static_cast<double>(all_.back()) / 1000);
  }
  void add(long long us) { all_.push_back(us); }

 private:
  std::string what_;
  std::vector<long long> all_;
};

}  // namespace

TEST_CASE("hosts: the examples on two machines of two ranks" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const auto hello = run(machines, both + words{"--", example("01_hello")});
  CHECK(hello.status == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    const std::string line = "[" + number + (rank < 2 ? " node0] rank " : " node1] rank ") + number + " of 4: ";
    CHECK_MESSAGE(contains(hello.out, line + "the ranks add up to 6"), hello.out);
  }
  const auto digits = run(machines, both + words{"--output", "rank0", "--", example("digits"), "--data",
                                                 TUTTI_SOURCE_DIR "/examples/data/digits.csv"});
  CHECK_MESSAGE(digits.status == 0, digits.out);
  CHECK(machines.become_idle(10s));
}

TEST_CASE("hosts: a host file, the first machine elsewhere, one machine, fewer ranks than places" *
          doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const temporary_directory folder;
  std::ofstream{folder.file("hosts")} << "node1 slots=2 # the first\nnode0:2\n";
  const words hostfile{"--hostfile", folder.file("hosts")};
  const std::string tell = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $(hostname)";
  const auto all = run(machines, hostfile + script(tell));
  for (const char* line : {"[0 node1] 0 0 4 2 0 10.77.0.2 node1", "[1 node1] 1 1 4 2 0 10.77.0.2 node1",
                           "[2 node0] 2 0 4 2 1 10.77.0.2 node0", "[3 node0] 3 1 4 2 1 10.77.0.2 node0"})
    CHECK_MESSAGE(contains(all.out, line), all.out);
  const auto joined = run(machines, hostfile + words{"--", example("01_hello")});
  CHECK_MESSAGE(joined.status == 0, joined.out);
  const auto three = run(machines, hostfile + words{"-n", "3", "--", example("01_hello")});
  CHECK_MESSAGE(contains(three.out, "[2 node0] rank 2 of 3"), three.out);
  const auto one =
      run(machines, hostfile + words{"-n", "2"} + script("echo $TUTTI_RENDEZVOUS; exec " + example("01_hello")));
  CHECK_MESSAGE(contains(one.out, "[0 node1] unix:@tutti-"), one.out);
  CHECK_MESSAGE(contains(one.out, "[1 node1] rank 1 of 2"), one.out);
}

TEST_CASE("hosts: a rank has the folder, chosen variables and the secret, which no command line shows" *
          doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const temporary_directory folder;
  const std::string tell =
      "echo $(pwd) A=$A B=$B C=${C-none} T=$TUTTI_TRANSPORT $(stat -c '%a %s' $TUTTI_SECRET_FILE); "
      "od -An -v -tx1 $TUTTI_SECRET_FILE | tr -d ' \\n' >" +
      folder.file("secret.") + "$RANK; tr '\\0' '\\n' </proc/*/cmdline >" + folder.file("lines.") +
      "$RANK 2>/dev/null; cat /proc/*/cmdline >" + folder.file("lines.") + "$RANK 2>/dev/null; true";
  const auto all =
      run(machines,
          both + words{"--wdir", folder.path().string(), "-x", "A", "--env", "B=b c", "--env", "A2=1"} + script(tell),
          {"A=a", "C=c", "TUTTI_TRANSPORT=tcp"});
  CAPTURE(all.out);
  CHECK(all.status == 0);
  const std::string here = "[0 node0] " + folder.path().string() + " A=a B=b c C=c T=tcp 600 32";
  const std::string there = "[2 node1] " + folder.path().string() + " A=a B=b c C=none T=tcp 600 32";
  CHECK(contains(all.out, here));
  CHECK(contains(all.out, there));
  const auto content = [&](const std::string& name) {
    std::ifstream file{folder.file(name)};
    return std::string{std::istreambuf_iterator<char>{file}, {}};
  };
  const std::string secret = content("secret.0");
  CHECK(secret.size() == 64);
  for (const char* rank : {"1", "2", "3"}) {
    CHECK(content(std::string{"secret."} + rank) == secret);
    CHECK_FALSE(contains(content(std::string{"lines."} + rank), secret));
  }
}

TEST_CASE("hosts: rank 0 reads stdin, whichever machine it is on" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  for (const char* hosts : {"node0:1,node1:1", "node1:1,node0:1"}) {
    const words tail = script("[ $RANK != 0 ] || echo read $(wc -c); [ $RANK = 0 ] || echo other $(wc -c)");
    auto what = machines.launcher(0, words{"--hosts", hosts} + tail);
    const std::string feeder = "head -c 1000000 /dev/zero | \"$@\"";
    words arguments{"-c", feeder, "sh", what.program};
    what = {"/bin/sh", arguments + what.arguments, what.environment};
    const auto all = job{what}.wait();
    CHECK_MESSAGE(contains(all.out, "] read 1000000"), all.out);
    CHECK_MESSAGE(contains(all.out, "] other 0"), all.out);
  }
}

TEST_CASE("hosts: much output of all ranks is whole" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const auto all = run(machines, both + words{"--output", "plain"} + script("yes 0123456789abcdef | head -n 200000"));
  CHECK(all.status == 0);
  CHECK(all.out.size() == 4U * 200000U * 17U);
}

TEST_CASE("hosts: when the reader of the output has left, the ranks hear of it" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  auto what = machines.launcher(0, both + words{"--settle", "60"} + script("exec yes"));
  what = {"/bin/sh", words{"-c", "\"$@\" 2>/dev/null | head -n 1", "sh", what.program} + what.arguments,
          what.environment};
  CHECK(contains(job{what}.wait().out, "] y\n"));
  CHECK(machines.become_idle(10s));
}

TEST_CASE("hosts: what the shell of a machine prints when it starts is not taken for messages" *
          doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const temporary_directory folder;
  std::ofstream{folder.file("ssh")} << "#!/bin/sh\nprintf 'Welcome!\\n\\ntutti-run'\nexec " << machines.ssh()
                                    << " \"$@\"\n";
  ::chmod(folder.file("ssh").c_str(), 0755);
  const auto all = run(machines, both + words{"--ssh", folder.file("ssh"), "--", example("01_hello")});
  CHECK_MESSAGE(all.status == 0, all.out);
  CHECK_MESSAGE(contains(all.out, "[3 node1] rank 3 of 4: "), all.out);
}

TEST_CASE("hosts: the exit code is that of the rank that failed first, which is named with its machine" *
          doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const auto failed = run(machines, both + script("[ $RANK = 3 ] || exec sleep 1000; echo why >&2; exit 42"));
  CAPTURE(failed.out);
  CHECK(failed.status == 42);
  CHECK(contains(failed.out, "rank 3 on node1 (pid "));
  CHECK(contains(failed.out, "the last lines of rank 3 on node1 on stderr:\n  | why"));
  CHECK(contains(failed.out, "ended by tutti-run with SIGTERM: ranks 0-2"));
  CHECK(machines.become_idle(10s));
}

TEST_CASE("hosts: what cannot be started says where and what to do" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  struct wrong {
    words arguments;
    int status;
    std::vector<std::string> said;
  };
  const std::vector<wrong> all{
      {both + words{"--", "/nowhere/prog"}, 127, {"node0: cannot run '/nowhere/prog': there is no such file"}},
      {words{"--hosts", "node1:1,nowhere:1", "--", "true"},
       1,
       {"nowhere: ssh ended with exit code 255", "BatchMode=yes nowhere true", "Could not resolve"}},
      {both + words{"--remote-tutti-run", "/nowhere/tutti-run", "--", "true"},
       1,
       {"node1: there is no /nowhere/tutti-run; install tutti-run there", "--remote-tutti-run PATH"}},
      {both + words{"--wdir", "/nowhere", "--", "true"}, 1, {"cannot enter the working directory /nowhere", "--wdir"}},
      {both + words{"--ssh", "/nowhere/ssh -p 1", "--", "true"},
       1,
       {"node1: /nowhere/ssh ended", "cannot run /nowhere/ssh"}}};
  for (const auto& one : all) {
    const auto done = run(machines, one.arguments);
    CAPTURE(done.out);
    CHECK(done.status == one.status);
    for (const auto& part : one.said) CHECK_MESSAGE(contains(done.out, part), part);
    CHECK(machines.become_idle(10s));
  }
}

TEST_CASE("hosts: SIGTERM and SIGINT reach the ranks of all machines, which have the time of --grace" *
          doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  for (const int number : {SIGTERM, SIGINT}) {
    job running{machines.launcher(
        0, both + script("trap 'echo bye $RANK; exit 0' TERM; echo ready $RANK; while :; do sleep 0.05; done"))};
    for (const char* rank : {"ready 0", "ready 1", "ready 2", "ready 3"})
      REQUIRE_MESSAGE(running.await(rank), running.out());
    running.all.signal(0, number);
    const auto done = running.wait();
    CAPTURE(done.out);
    CHECK(done.status == 128 + number);
    for (const char* rank : {"[0 node0] bye 0", "[1 node0] bye 1", "[2 node1] bye 2", "[3 node1] bye 3"})
      CHECK(contains(done.out, rank));
    CHECK(machines.become_idle(10s));
  }
  job stubborn{machines.launcher(
      0, both + words{"--grace", "0.5"} + script("trap '' TERM; echo ready $RANK; while :; do sleep 0.05; done"))};
  for (const char* rank : {"ready 0", "ready 1", "ready 2", "ready 3"})
    REQUIRE_MESSAGE(stubborn.await(rank), stubborn.out());
  stubborn.all.signal(0, SIGTERM);
  const auto done = stubborn.wait();
  CHECK_MESSAGE(contains(done.out, "had to be killed: ranks 0-3"), done.out);
  CHECK(machines.become_idle(10s));
}

TEST_CASE("hosts: a rank that is killed is named with its machine, and nothing is left" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  delays noticed{"a rank is killed: the others end"}, reported{"a rank is killed: tutti-run ends"};
  for (int trial = 0; trial < kills(); ++trial) {
    const int victim = trial % 4;
    CAPTURE(trial);
    job running{machines.launcher(0, both + streaming())};
    await_stream(running);
    const long long killed = now_us();
    REQUIRE(::kill(pid_of(running.out(), victim), SIGKILL) == 0);
    const auto done = running.wait();
    reported.add(now_us() - killed);
    CAPTURE(done.out);
    CHECK(done.status == 128 + SIGKILL);
    const std::string name = "rank " + std::to_string(victim) + (victim < 2 ? " on node0" : " on node1");
    CHECK(contains(done.out, "tutti-run: " + name + " (pid "));
    CHECK(contains(done.out, "killed by SIGKILL"));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const auto end = ending_of(done.out, rank);
      REQUIRE(end.has_value());
      CHECK(end->kind == static_cast<int>(tutti::errc::peer_lost));
      CHECK(end->peer == victim);
      noticed.add(end->at_us - killed);
    }
    CHECK(machines.become_idle(10s));
  }
}

TEST_CASE("hosts: a machine that is cut off is named, and nothing is left on it" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  delays noticed{"a machine is cut off: the others end"}, reported{"a machine is cut off: tutti-run ends"},
      idle{"a machine is cut off: nothing runs there any more"};
  for (int trial = 0; trial < kills(); ++trial) {
    CAPTURE(trial);
    job running{machines.launcher(0, both + words{"--grace", "2"} + streaming())};
    await_stream(running);
    const long long cut = now_us();
    machines.pair().connect(false);
    const auto done = running.wait();
    reported.add(now_us() - cut);
    CAPTURE(done.out);
    CHECK(done.status == 1);
    CHECK((contains(done.out, "tutti-run: rank 2 on node1 failed first, ") ||
           contains(done.out, "tutti-run: rank 3 on node1 failed first, ")));
    CHECK(contains(done.out, "its machine has not answered for "));
    for (const int rank : {0, 1}) {
      const auto end = ending_of(done.out, rank);
      REQUIRE(end.has_value());
      CHECK(end->kind == static_cast<int>(tutti::errc::peer_lost));
      CHECK(end->peer >= 2);
      noticed.add(end->at_us - cut);
    }
    CHECK(machines.busy(0).empty());
    const auto ours = [&] {  // sshd itself gives up much later
      auto left = machines.busy(1);
      std::erase_if(left, [](::pid_t pid) {
        std::ifstream file{"/proc/" + std::to_string(pid) + "/comm"};
        std::string name;
        std::getline(file, name);
        return name == "sshd" || name.empty();
      });
      return !left.empty();
    };
    for (const auto until = std::chrono::steady_clock::now() + 60s; ours();) {
      REQUIRE(std::chrono::steady_clock::now() < until);
      std::this_thread::sleep_for(20ms);
    }
    idle.add(now_us() - cut);
    machines.pair().connect(true);
  }
}

TEST_CASE("hosts: when the launcher is killed, nothing is left on any machine" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  delays idle{"the launcher is killed: nothing runs any more"};
  for (int trial = 0; trial < kills(); ++trial) {
    CAPTURE(trial);
    // None of them would notice by itself that others have ended.
    job running{machines.launcher(0, both + script("echo ready $RANK; exec sleep 1000"))};
    for (const char* rank : {"ready 0", "ready 1", "ready 2", "ready 3"})
      REQUIRE_MESSAGE(running.await(rank), running.out());
    const long long killed = now_us();
    if (trial % 3 == 2) {  // the guard and all processes beside it
      for (const ::pid_t pid : machines.busy(0)) ::kill(pid, SIGKILL);
    } else if (trial % 3 == 1) {  // the supervisor alone
      for (const ::pid_t pid : machines.busy(0)) {
        std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
        std::string line;
        std::getline(file, line);
        const auto name = line.find("(tutti-keeper) ");
        if (name != std::string::npos && std::atoi(line.c_str() + name + 17) == running.all.pid(0))
          ::kill(pid, SIGKILL);
      }
    } else {
      running.all.signal(0, SIGKILL);
    }
    running.wait();
    CHECK(machines.become_idle(15s));
    idle.add(now_us() - killed);
  }
}

TEST_CASE("hosts: when a connection breaks, its machine is named, and nothing is left on any machine" *
          doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  job running{machines.launcher(0, both + script("echo ready $RANK; exec sleep 1000"))};
  for (const char* rank : {"ready 0", "ready 1", "ready 2", "ready 3"})
    REQUIRE_MESSAGE(running.await(rank), running.out());
  for (const ::pid_t pid : machines.busy(0)) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/comm"};
    std::string name;
    std::getline(file, name);
    if (name == "ssh") ::kill(pid, SIGKILL);
  }
  const auto done = running.wait();
  CAPTURE(done.out);
  CHECK(done.status == 1);
  CHECK(contains(done.out, "rank 2 on node1 failed first, "));
  CHECK(contains(done.out, "the connection to its machine broke"));
  CHECK(machines.become_idle(15s));
}

TEST_CASE("hosts: once on each machine, with torchrun's words" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (skipped(machines)) return;
  const temporary_directory folder;
  std::ofstream{folder.file("secret")} << std::string(64, '1');
  ::chmod(folder.file("secret").c_str(), 0600);
  const auto part = [&](int machine, const words& where, const words& what) {
    return machines.pair().run(
        machine, tutti_run(),
        words{"--nnodes", "2", "--node-rank", std::to_string(machine), "--nproc-per-node", "2"} + where + what,
        {"TUTTI_SECRET_FILE=" + folder.file("secret")});
  };
  for (const words& where :
       {words{"--master-addr", "node0", "--master-port", "29520"}, words{"--rdzv", "tcp://node0:29521"}}) {
    processes all;
    for (const int machine : {0, 1}) all.start(part(machine, where, {"--", example("01_hello")}));
    const auto done = all.wait();
    CHECK_MESSAGE(contains(done[0].out, "[1 node0] rank 1 of 4: the ranks add up to 6"), done[0].out);
    CHECK_MESSAGE(contains(done[1].out, "[3 node1] rank 3 of 4: the ranks add up to 6"), done[1].out);
  }
  processes all;
  const words where{"--rdzv", "tcp://node0:29522"};
  for (const int machine : {0, 1}) all.start(part(machine, where, streaming()));
  for (const std::size_t machine : {0U, 1U}) REQUIRE_MESSAGE(all.await(machine, "streaming"), all.out(machine));
  ::kill(pid_of(all.out(1), 3), SIGKILL);
  const auto done = all.wait();
  CHECK_MESSAGE(contains(done[1].out, "rank 3 on node1 (pid "), done[1].out);
  CHECK_MESSAGE(contains(done[0].out, "had been told of a failure of rank 3, on another machine"), done[0].out);
  CHECK(machines.become_idle(10s));
}
