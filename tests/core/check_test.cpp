#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <tutti/core/check.hpp>

// assert() is defined anew by each include of <cassert>, so that both kinds of build can be seen in one file.
#undef NDEBUG
#include <cassert>

namespace {

int evaluated_in_debug(bool condition) {
  int evaluations = 0;
  TUTTI_ASSERT((++evaluations, condition));
  return evaluations;
}

/// The signal that ends a child in which an assertion of `condition` is met; 0 when the child survives.
int signal_of_child(bool condition) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    evaluated_in_debug(condition);
    _exit(0);
  }
  int state = 0;
  if (child < 0 || waitpid(child, &state, 0) != child) return -1;
  return WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state);
}

}  // namespace

#define NDEBUG
#include <cassert>

namespace {

int evaluated_in_release() {
  int evaluations = 0;
  TUTTI_ASSERT((++evaluations, false));
  return evaluations;
}

TEST_CASE("TUTTI_ASSERT: a condition that holds is evaluated once and changes nothing") {
  CHECK(evaluated_in_debug(true) == 1);
  CHECK(signal_of_child(true) == 0);
}

TEST_CASE("TUTTI_ASSERT: a condition that does not hold ends a debug build") {
  CHECK(signal_of_child(false) == SIGABRT);
}

TEST_CASE("TUTTI_ASSERT: with NDEBUG nothing is evaluated") { CHECK(evaluated_in_release() == 0); }

}  // namespace
