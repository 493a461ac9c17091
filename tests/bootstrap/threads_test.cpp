#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/bootstrap/threads.hpp>

#include <system_error>

TEST_CASE("run_threads: where not all threads can be started, no rank runs, and the error comes at once") {
  if (::geteuid() != 0) return;  // another process of this user would change what the limit leaves
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const rlimit three{3, 3};
    if (::setrlimit(RLIMIT_NPROC, &three) != 0 || ::setuid(64322) != 0) ::_exit(2);
    try {
      tutti::run_threads(8, [](auto& world) { world.barrier().wait(); });
    } catch (const std::system_error&) {
      ::_exit(0);
    } catch (...) {
    }
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
