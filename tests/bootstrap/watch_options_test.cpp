#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/watch_options.hpp>
#include <tutti/core/error.hpp>

#include "support/temporary_directory.hpp"

namespace {

using namespace tutti::detail;
using tutti::init_options;
using tutti::usage_error;

struct variables {
  std::map<std::string, std::string, std::less<>> all;
  std::optional<std::string_view> operator()(std::string_view name) const {
    const auto at = all.find(name);
    return at == all.end() ? std::nullopt : std::optional<std::string_view>{at->second};
  }
};

std::string refusal(const init_options& o, const variables& v) {
  try {
    static_cast<void>(watch_options_of(o, v));
  } catch (const usage_error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("watch_options: nothing is watched unless it is asked for; options precede variables, and folders are made") {
  const tutti_test::temporary_directory home;
  CHECK(watch_options_of({}, variables{}).flight.empty());
  const variables v{{{"TUTTI_FLIGHT_DIR", home.file("a/b")}, {"TUTTI_METRICS_DIR", home.file("m")}}};
  init_options o;
  o.metrics = home.file("own");
  const auto chosen = watch_options_of(o, v);
  CHECK(chosen.flight == home.file("a/b"));
  CHECK(chosen.metrics == home.file("own"));
  CHECK(chosen.trace.empty());
  CHECK(std::filesystem::is_directory(home.file("a/b")));
  CHECK(std::filesystem::is_directory(home.file("own")));
  CHECK_FALSE(std::filesystem::exists(home.file("m")));
}

TEST_CASE("watch_options: a folder that cannot be made is refused by the name that it came from") {
  init_options o;
  o.trace = "/proc/nowhere";
  CHECK(refusal(o, {}).find("init_options::trace \"/proc/nowhere\" is no folder that this rank can write to: ") == 0);
  CHECK(refusal({}, {{{"TUTTI_METRICS_DIR", "/proc/nowhere"}}}).find("TUTTI_METRICS_DIR \"/proc/nowhere\" is no") == 0);
}

TEST_CASE("watch_options: the port and the job of metrics") {
  CHECK(watch_options_of({}, variables{}).metrics_port == 0);
  const variables v{{{"TUTTI_METRICS_PORT", "9400"}, {"TUTTI_METRICS_JOB", "nightly"}}};
  CHECK(watch_options_of({}, v).metrics_port == 9400);
  CHECK(watch_options_of({}, v).metrics_job == "nightly");
  init_options o;
  o.metrics_port = 9500;
  CHECK(watch_options_of(o, v).metrics_port == 9500);
  for (const char* wrong : {"0", "-1", "65536", "http", "9400 "})
    CHECK(refusal({}, {{{"TUTTI_METRICS_PORT", wrong}}}).find("is no port; write a number from 1 to 65535") !=
          std::string::npos);
  o.metrics_port = -1;
  CHECK(refusal(o, {}).find("init_options::metrics_port \"-1\" is no port") == 0);
}

TEST_CASE("watch_options: signals by name or number") {
  CHECK(signal_of("USR2") == SIGUSR2);
  CHECK(signal_of("SIGUSR1") == SIGUSR1);
  CHECK(signal_of("12") == 12);
  CHECK(signal_of("SIGNAL") == 0);
  CHECK(signal_of("") == 0);
  CHECK(refusal({}, {{{"TUTTI_FLIGHT_SIGNAL", "USR2"}}}).find("needs a folder") != std::string::npos);
  const tutti_test::temporary_directory home;
  CHECK(refusal({}, {{{"TUTTI_FLIGHT_DIR", home.file("f")}, {"TUTTI_FLIGHT_SIGNAL", "now"}}}).find("is no signal") !=
        std::string::npos);
  CHECK(refusal({}, {{{"TUTTI_FLIGHT_DIR", home.file("f")}, {"TUTTI_FLIGHT_SIGNAL", "KILL"}}}).find("is no signal") !=
        std::string::npos);
  CHECK(refusal({}, {{{"TUTTI_FLIGHT_DIR", home.file("f")}, {"TUTTI_FLIGHT_SIGNAL", "9"}}}).find("cannot be handled") !=
        std::string::npos);
}

TEST_CASE("watch_options: the time after which a stall is warned of") {
  using namespace std::chrono_literals;
  CHECK(stall_warning_of({}, variables{}) == 30s);
  CHECK(stall_warning_of({}, variables{{{"TUTTI_STALL_WARNING", "5"}}}) == 5s);
  init_options o;
  o.stall_warning = 200ms;
  CHECK(stall_warning_of(o, variables{{{"TUTTI_STALL_WARNING", "5"}}}) == 200ms);
  for (const char* wrong : {"-1", "soon", "", "1.5", "99999999999"})
    CHECK_THROWS_AS(static_cast<void>(stall_warning_of({}, variables{{{"TUTTI_STALL_WARNING", wrong}}})), usage_error);
  o.stall_warning = -1s;
  CHECK_THROWS_AS(static_cast<void>(stall_warning_of(o, variables{})), usage_error);
}

}  // namespace
