#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/bootstrap/launch/held_place.hpp>

#include <string>

namespace {

// 0: another process takes the place, 1: it is refused and the message has `part`, 2: it takes none.
int in_another_process(const std::string& job, int rank, const std::string& part = "") {
  const ::pid_t pid = ::fork();
  if (pid == 0) {
    int outcome = 3;
    try {
      outcome = tutti::detail::hold_place(job, rank) ? 0 : 2;
    } catch (const tutti::usage_error& e) {
      outcome = std::string{e.what()}.find(part) != std::string::npos ? 1 : 4;
    }
    ::_exit(outcome);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("held_place: a place is one process's, as long as that keeps it") {
  const std::string job = "unix:@held-place-" + std::to_string(::getpid()), other = job + "-other";
  auto mine = tutti::detail::hold_place(job, 1);
  REQUIRE(mine);
  auto again = tutti::detail::hold_place(job, 1);
  CHECK(again == mine);
  CHECK(in_another_process(job, 1, "process " + std::to_string(::getpid()) + ", which started this program") == 1);
  CHECK(in_another_process(job, 0) == 0);
  CHECK(in_another_process(other, 1) == 0);
  mine.reset();
  CHECK(in_another_process(job, 1, "has joined its world") == 1);
  again.reset();
  CHECK(in_another_process(job, 1) == 0);
}

TEST_CASE("held_place: a process may be a rank of two jobs, and is not refused at a place of its own") {
  const std::string job = "unix:@held-place-" + std::to_string(::getpid()), other = job + "-other";
  const auto mine = tutti::detail::hold_place(job, 1), second = tutti::detail::hold_place(other, 0);
  CHECK(mine);
  CHECK(second);
  CHECK_FALSE(tutti::detail::hold_place(job, 1));
  CHECK(in_another_process(job, 1) == 1);
  CHECK(in_another_process(other, 0) == 1);
}

TEST_CASE("held_place: a child that outlives its parent does not keep the place") {
  const std::string job = "unix:@held-place-" + std::to_string(::getpid());
  auto mine = tutti::detail::hold_place(job, 1);
  int hold[2], up[2];
  REQUIRE(::pipe(hold) == 0);
  REQUIRE(::pipe(up) == 0);
  char none = 0;
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    static_cast<void>(!::write(up[1], "x", 1));
    static_cast<void>(!::read(hold[0], &none, 1));
    ::_exit(0);
  }
  REQUIRE(::read(up[0], &none, 1) == 1);  // fork() has returned in the child, which has given the place up
  mine.reset();
  CHECK(in_another_process(job, 1) == 0);
  for (const int end : {hold[0], hold[1], up[0], up[1]}) ::close(end);
  ::waitpid(child, nullptr, 0);
}
