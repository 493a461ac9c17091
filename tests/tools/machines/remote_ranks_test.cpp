#include <doctest/doctest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/temporary_directory.hpp"
#include "tools/launcher.hpp"

namespace {

using namespace tutti_test::launcher;

/// Programs in the place of ssh: the machine is this one. `before` is what its shell does before it runs the agent.
class pretended_ssh {
 public:
  explicit pretended_ssh(std::string_view before) : path_(folder_.file("ssh")) {
    std::ofstream{path_} << "#!/bin/sh\nfor word; do machine=$command; command=$word; done\nDIR="
                         << folder_.path().string() << "\n"
                         << before << "\neval \"$command\"\n";
    ::chmod(path_.c_str(), 0755);
  }

  /// The command line of a job on these machines, with a script as the program of every rank.
  std::vector<std::string> job(const std::string& hosts, std::vector<std::string> options,
                               std::string_view text) const {
    options.insert(options.begin(), {"--hosts", hosts, "--ssh", path_, "--env", "DIR=" + folder_.path().string()});
    return script(std::move(options), text);
  }

 private:
  tutti_test::temporary_directory folder_;
  std::string path_;
};

}  // namespace

TEST_CASE("run/remote_ranks: a machine that takes more input than was sent is named, and the job ends") {
  // A message of eight bytes, of kind 9; the agent writes to the same pipe.
  const std::string more =
      "(while [ ! -e $DIR/go ]; do sleep 0.01; done; printf '\\010\\0\\0\\0\\011\\0\\0\\0\\0\\1\\0\\0\\0') &";
  const pretended_ssh first{"[ $machine = a ] && " + more}, second{"[ $machine = me@b ] && " + more};
  for (const auto* ssh : {&first, &second}) {
    const auto done = run(ssh->job("a:1,me@b:1", {"--grace", "0.1"}, ": >$DIR/go; exec sleep 20"));
    CHECK(done.status == 1);
    CHECK(contains(done.err, std::string{"tutti-run: "} + (ssh == &first ? "a" : "b") +
                                 ": a message between launchers takes more input than was sent\n"));
  }
}

TEST_CASE("run/remote_ranks: the ranks of a machine that is lost after Ctrl-C are not said to have ended") {
  const pretended_ssh ssh{""};
  job running{ssh.job("a:1,b:2", {"--grace", "1000"}, "echo rank $RANK, keeper $PPID; exec sleep 1000")};
  running.await("keeper ", 3);
  const auto of_rank_1 = running.out().find("rank 1, ");
  ::kill(numbers_after(running.out().substr(of_rank_1), "keeper").front(), SIGSTOP);
  running.signal(SIGINT);
  const auto done = running.wait();
  CAPTURE(done.err);
  CHECK(done.status == 1);
  CHECK(contains(done.err, "tutti-run: interrupted by SIGINT"));
  CHECK(contains(done.err, "tutti-run: ended by tutti-run with SIGTERM: rank 0\n"));
  CHECK(contains(done.err, "tutti-run: not known to have ended: ranks 1-2 (b: its machine has not answered for "));
}

TEST_CASE("run/remote_ranks: the command to try is that which was run, with the user") {
  const pretended_ssh ssh{"exit 255"};
  const auto done = run(ssh.job("me@node2:1", {}, ""));
  CHECK(done.status == 1);
  CHECK(contains(done.err, "node2: "));
  CHECK(contains(done.err, " -o BatchMode=yes me@node2 true"));
}
