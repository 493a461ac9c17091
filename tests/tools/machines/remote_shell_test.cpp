#include "tutti-run/machines/remote_shell.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace tutti::launch;
using words = std::vector<std::string>;

}  // namespace

TEST_CASE("run/remote_shell: words end at spaces") {
  CHECK(words_of("ssh  -p 2222 ") == words{"ssh", "-p", "2222"});
  CHECK(words_of("").empty());
}

TEST_CASE("run/remote_shell: the command of an agent") {
  const remote_shell plain{{"ssh", "-p", "2222"}, "~/bin/tutti-run"};
  CHECK(agent_command(plain, "me@node2", false) == words{"ssh", "-p", "2222", "-T", "-o", "BatchMode=yes", "-o",
                                                         "ControlMaster=no", "--", "me@node2",
                                                         "exec ~/bin/tutti-run --agent"});
  CHECK(agent_command({{"ssh"}, "/my tools/tutti-run"}, "node2", false).back() == "exec '/my tools/tutti-run' --agent");
  CHECK_THROWS_AS(agent_command({{"ssh"}, "/it's/tutti-run"}, "node2", false), failure);
  CHECK(agent_command(plain, "localhost", true) == words{own_path(), "--agent"});
}
