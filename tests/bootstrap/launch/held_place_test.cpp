#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/bootstrap/launch/held_place.hpp>

#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "support/temporary_directory.hpp"

namespace {

// 0: another process takes the place, 1: it is refused and the message has `part`, 2: it takes none.
int in_another_process(const std::string& file, int rank, const std::string& part = "") {
  const ::pid_t pid = ::fork();
  if (pid == 0) {
    int outcome = 3;
    try {
      outcome = tutti::detail::hold_place(file, rank) ? 0 : 2;
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
  const tutti_test::temporary_directory folder;
  const std::string file = folder.file("ranks");
  std::ofstream{file}.flush();
  auto mine = tutti::detail::hold_place(file, 1);
  REQUIRE(mine);
  auto again = tutti::detail::hold_place(file, 1);
  CHECK(again == mine);
  CHECK(in_another_process(file, 1, "process " + std::to_string(::getpid()) + ", which started this program") == 1);
  CHECK(in_another_process(file, 0) == 0);
  mine.reset();
  CHECK(in_another_process(file, 1, "has joined its world") == 1);
  again.reset();
  CHECK(in_another_process(file, 1) == 0);
}

TEST_CASE("held_place: where a launcher made no such file there is nothing to hold") {
  const auto with = [](std::optional<std::string_view> value) {
    return [value](std::string_view name) { return name == "TUTTI_SECRET_FILE" ? value : std::nullopt; };
  };
  using tutti::detail::file_of_places;
  CHECK(file_of_places(with("/tmp/x/secret")) == "/tmp/x/ranks");
  CHECK(file_of_places(with("job.secret")).empty());
  CHECK(file_of_places(with(std::nullopt)).empty());
  CHECK_FALSE(tutti::detail::hold_place("", 0));
  CHECK_FALSE(tutti::detail::hold_place("/nowhere/ranks", 0));
}
