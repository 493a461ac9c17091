#include <doctest/doctest.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launcher.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace tutti_test::launcher;

}  // namespace

TEST_CASE("run/failure: the first failure gives the status and is reported with its code and its stderr") {
  const auto done = run(script({"-n", "4", "--settle", "0"},
                               "[ $RANK = 2 ] || exec sleep 1000\n"
                               "for i in $(seq 30); do echo note $i >&2; done\n"
                               "printf 'no newline' >&2\n"
                               "exit 42"));
  CHECK(done.status == 42);
  CHECK(contains(done.err, "tutti-run: rank 2 (pid "));
  CHECK(contains(done.err, "s after the start: exit code 42\n"));
  CHECK(contains(done.err, "  | note 30\n  | no newline\n"));
  CHECK(contains(done.err, "  | note 12\n"));
  CHECK(!contains(done.err, "  | note 11\n"));
  CHECK(contains(done.err, "ended by tutti-run with SIGTERM: ranks 0-1, 3\n"));
  CHECK(job::occurrences(done.err, "failed first") == 1);
}

TEST_CASE("run/failure: a signal is named, and the status is 128 plus its number") {
  const auto segv = run(script({"-n", "2", "--settle", "0"}, "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 1000"));
  CHECK(segv.status == 128 + SIGSEGV);
  CHECK(contains(segv.err, "killed by SIGSEGV"));
  CHECK(contains(segv.err, "rank 1 wrote nothing to stderr"));
  const auto killed = run(script({"-n", "2", "--settle", "0"}, "[ $RANK = 0 ] && kill -KILL $$; exec sleep 1000"));
  CHECK(killed.status == 128 + SIGKILL);
  CHECK(contains(killed.err, "rank 0 (pid "));
  CHECK(contains(killed.err, "dmesg"));
}

// Ranks 0, 1 and 3 fail because rank 2 died: its end of the fifo closed. The kernel may well report their deaths before
// that of rank 2, which is still busy with dying.
TEST_CASE("run/failure: ranks that fail as a consequence never mask the cause") {
  for (const auto& [death, status] : {std::pair{"kill -KILL $$", 128 + SIGKILL}, std::pair{"exit 3", 3}}) {
    for (int trial = 0; trial < 25; ++trial) {
      const tutti_test::temporary_directory folder;
      REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
      const auto done = run(script({"-n", "4", "--env", "DIR=" + folder.path().string()},
                                   std::string{"cd $DIR\n"
                                               "if [ $RANK = 2 ]; then\n"
                                               "  exec 9>fifo\n"
                                               "  while [ ! -e 0 ] || [ ! -e 1 ] || [ ! -e 3 ]; do sleep 0.005; done\n"
                                               "  "} +
                                       death +
                                       "\nfi\n"
                                       "exec 8<fifo\n"
                                       "touch $RANK\n"
                                       "read line <&8\n"
                                       "echo peer died >&2\n"
                                       "exit 7"));
      CAPTURE(done.err);
      CHECK(done.status == status);
      CHECK(contains(done.err, "tutti-run: rank 2 (pid "));
      CHECK(contains(done.err, "failed after it: "));
      CHECK(job::occurrences(done.err, "] peer died") == 3);
    }
  }
}

TEST_CASE("run/failure: a program that closes all its descriptors is not taken for dead") {
  const tutti_test::temporary_directory folder;
  const auto done = run(script_with_ready(folder, {"-n", "2", "--settle", "0"},
                                          "if [ $RANK = 0 ]; then\n"
                                          "  exec bash -c 'exec 1023>&- 3>&- 4>&-; : >$DIR/closed; exec sleep 1000'\n"
                                          "fi\n"
                                          "await_ready 1\n"
                                          "sleep 0.1\n"
                                          "exit 6"));
  CHECK(done.status == 6);
  CHECK(contains(done.err, "rank 1 (pid "));
}

TEST_CASE("run/failure: survivors have time to say what they saw") {
  const tutti_test::temporary_directory folder;
  const auto done = run(script_with_ready(folder, {"-n", "3", "--settle", "50"},
                                          "if [ $RANK = 0 ]; then echo $$ >$DIR/pid; await_ready 3; exit 9; fi\n"
                                          "ready\n"
                                          "await_ready 3\n"
                                          "while kill -0 $(cat $DIR/pid) 2>/dev/null; do sleep 0.01; done\n"
                                          "sleep 0.1; echo saw it >&2; exit 1"));
  CHECK(done.status == 9);
  CHECK(job::occurrences(done.err, "] saw it\n") == 2);
  CHECK(contains(done.err, "rank 1 (exit code 1, "));
  CHECK(contains(done.err, "rank 2 (exit code 1, "));
  CHECK(!contains(done.err, "ended by tutti-run"));
}

TEST_CASE("run/failure: a rank that ignores SIGTERM is killed after the grace period") {
  const tutti_test::temporary_directory folder;
  const auto done = run(script_with_ready(folder, {"-n", "3", "--settle", "0", "--grace", "0.3"},
                                          "trap '' TERM\n"
                                          "echo pid $$\n"
                                          "[ $RANK = 1 ] && { await_ready 2; exit 4; }\n"
                                          "ready\n"
                                          "while :; do sleep 1000; done"));
  CHECK(done.status == 4);
  CHECK(contains(done.err, "had to be killed: ranks 0, 2\n"));
  const auto pids = numbers_after(done.out, "pid");
  CHECK(pids.size() == 3);
  for (const pid_t rank : pids) CHECK(!is_alive(rank));
}

TEST_CASE("run/failure: SIGTERM lets a rank finish its work within the grace period") {
  const tutti_test::temporary_directory folder;
  const auto done = run(script_with_ready(folder, {"-n", "2", "--settle", "0", "--grace", "50"},
                                          "[ $RANK = 1 ] && { await_ready 1; exit 4; }\n"
                                          "trap 'sleep 0.3; echo saved; exit 0' TERM\n"
                                          "ready\n"
                                          "while :; do sleep 0.02; done"));
  CHECK(done.status == 4);
  CHECK(contains(done.out, "[0] saved\n"));
  CHECK(contains(done.err, "ended by tutti-run with SIGTERM: rank 0\n"));
}

TEST_CASE("run/failure: a stopped rank can be ended, too") {
  const tutti_test::temporary_directory folder;
  const auto done = run(script_with_ready(folder, {"-n", "2", "--settle", "0", "--grace", "50"},
                                          "[ $RANK = 1 ] && { await_ready 1; sleep 0.1; exit 4; }\n"
                                          "ready\n"
                                          "kill -STOP $$"));
  CHECK(done.status == 4);
  CHECK(contains(done.err, "ended by tutti-run with SIGTERM: rank 0\n"));
}

TEST_CASE("run/failure: --timeout ends the job with status 124") {
  const auto done = run({"-n", "3", "--timeout", "0.3", "sleep", "1000"});
  CHECK(done.status == 124);
  CHECK(contains(done.err, "(--timeout)\n"));
  CHECK(contains(done.err, "ended by tutti-run with SIGTERM: ranks 0-2\n"));
  CHECK(run({"-n", "2", "--timeout", "60", "true"}).status == 0);
}

TEST_CASE("run/failure: success says nothing") {
  const auto done = run({"-n", "4", "true"});
  CHECK(done.status == 0);
  CHECK(done.out.empty());
  CHECK(done.err.empty());
}

// As a debugger does that is stopped itself.
TEST_CASE("run/failure: a rank that dies while a debugger holds it stops nothing, and its end is reported later") {
  job running{script({"-n", "2"}, "trap 'echo noticed' USR1; echo pid $$ rank $RANK; while :; do sleep 0.01; done")};
  running.await("rank ", 2);
  const pid_t rank0 = numbers_after(running.out(), "[0] pid").front();
  if (::ptrace(PTRACE_SEIZE, rank0, nullptr, nullptr) != 0) {
    MESSAGE("skipped: ptrace is not allowed here");
    return;
  }
  ::kill(rank0, SIGKILL);
  REQUIRE(eventually([&] { return !is_alive(rank0); }));
  running.signal(SIGUSR1);
  running.await("[1] noticed");  // the launcher passes on signals and output
  running.signal(SIGTERM);
  running.await("SIGTERM: ending the ranks");
  CHECK(::waitpid(rank0, nullptr, __WALL) == rank0);
  const auto done = running.wait();
  CHECK(done.status == 128 + SIGKILL);
  CHECK(contains(done.err, "tutti-run: rank 0 (pid "));
  CHECK(contains(done.err, "killed by SIGKILL"));
  CHECK(contains(done.err, "ended by tutti-run with SIGTERM: rank 1\n"));
}
