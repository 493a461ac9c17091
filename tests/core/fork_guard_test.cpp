#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <tutti/core/fork_guard.hpp>

using tutti::detail::fork_guard;

namespace {

/// Runs `what` in a child; its answer.
template <class What>
bool in_child(What what) {
  const ::pid_t child = ::fork();
  if (child == 0) ::_exit(what() ? 1 : 0);
  int status = 0;
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

}  // namespace

TEST_CASE("forks: a child inherits what its parent made, and its children what either made") {
  const fork_guard ours;
  CHECK_FALSE(ours.inherited());
  CHECK(in_child([&] {
    const fork_guard childs;
    return ours.inherited() && !childs.inherited() &&
           in_child([&] { return ours.inherited() && childs.inherited() && !fork_guard{}.inherited(); });
  }));
  CHECK_FALSE(ours.inherited());
  CHECK_FALSE(fork_guard{}.inherited());
}
