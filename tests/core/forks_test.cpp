#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <tutti/core/forks.hpp>

using tutti::detail::origin;

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
  const origin ours;
  CHECK_FALSE(ours.inherited());
  CHECK(in_child([&] {
    const origin childs;
    return ours.inherited() && !childs.inherited() &&
           in_child([&] { return ours.inherited() && childs.inherited() && !origin{}.inherited(); });
  }));
  CHECK_FALSE(ours.inherited());
  CHECK_FALSE(origin{}.inherited());
}
