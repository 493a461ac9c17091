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
