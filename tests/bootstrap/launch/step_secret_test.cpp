#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tutti/bootstrap/launch/step_secret.hpp>

#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "support/temporary_directory.hpp"

namespace {

using namespace tutti;
using detail::await_step_secret;
using detail::step_secret_file;
using detail::step_secret_path;

struct variables {
  std::map<std::string, std::string, std::less<>> values;
  std::optional<std::string_view> operator()(std::string_view name) const {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  }
};

std::string refused(const std::string& path) {
  try {
    static_cast<void>(await_step_secret(path, clock::now(), {}));
  } catch (const error& e) {
    CHECK(e.kind() == errc::auth_failed);
    return e.what();
  }
  return "it was read";
}

}  // namespace

TEST_CASE("step_secret: a file that cannot be written is an error of rank 0, and is removed") {
  const tutti_test::temporary_directory folder;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  std::string why;
  try {
    const step_secret_file made{folder.file("secret")};
  } catch (const error& e) {
    why = e.what();
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, signal_before);
  CHECK(why.find("File too large") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("step_secret: the path belongs to one step") {
  variables step{{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_SUBMIT_DIR", "/home/me"}}};
  CHECK(step_secret_path(step) == "/home/me/.tutti-secret-7.1");
  step.values["SLURM_CLUSTER_NAME"] = "a/b";
  step.values["SLURM_RESTART_COUNT"] = "2";
  CHECK(step_secret_path(step) == "/home/me/.tutti-secret-a_b-7.1.2");
  step.values["SLURM_STEP_ID"] = "4294967291";  // a batch script
  CHECK(step_secret_path(step).empty());
  CHECK(step_secret_path(variables{}).empty());
}

TEST_CASE("step_secret: one rank writes it, for its user alone, the others wait for it, and no file is left") {
  const tutti_test::temporary_directory folder;
  const std::string path = folder.file("secret");
  const std::string link = folder.file("link");  // another name of the file: this process remembers secrets by path
  std::filesystem::create_symlink(path, link);
  std::optional<wire::secret> read;
  std::thread other{[&] { read = await_step_secret(link, after(std::chrono::seconds{30}), {}); }};
  {
    const step_secret_file made{path};
    other.join();
    REQUIRE(read.has_value());
    CHECK(*read == made.value());
    struct stat s{};
    REQUIRE(::stat(path.c_str(), &s) == 0);
    CHECK((s.st_mode & 0777) == 0600);
    CHECK(s.st_size == 32);
  }
  CHECK_FALSE(std::filesystem::exists(path));
  // The next world of the same step: who has it needs no file, and who has not finds the same.
  CHECK(await_step_secret(link, clock::now(), {}) == *read);
  CHECK(step_secret_file{path}.value() == *read);
}

TEST_CASE("step_secret: without the file, or with one that others may read, the error says what to do") {
  const tutti_test::temporary_directory folder;
  const std::string absent = refused(folder.file("absent"));
  CHECK(absent.find("the machines do not share that folder") != std::string::npos);
  CHECK(absent.find("export TUTTI_SECRET_FILE=") != std::string::npos);
  const step_secret_file made{folder.file("open")};
  ::chmod(folder.file("open").c_str(), 0644);
  std::filesystem::create_symlink(folder.file("open"), folder.file("other"));
  CHECK(refused(folder.file("other")).find("others may read it") != std::string::npos);
  CHECK_THROWS_AS(step_secret_file{folder.file("no/such/folder")}, error);
}

TEST_CASE("step_secret: who is told to stop does not wait") {
  const tutti_test::temporary_directory folder;
  std::stop_source stop;
  stop.request_stop();
  try {
    static_cast<void>(await_step_secret(folder.file("absent"), after(std::chrono::seconds{60}), stop.get_token()));
    FAIL("it was read");
  } catch (const error& e) {
    CHECK(e.kind() == errc::aborted);
  }
}
