#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "process/launch/ssh_machines.hpp"
#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// What tutti-run --status says of a job that runs: a rank that is stopped, hangs, waits in another call, or is slow.
// TUTTI_TEST_REPEATS is how often each is asked for.
namespace {

using namespace tutti_test;
using nlohmann::json;

processes::report ask(const command& what) {
  processes one;
  one.start(what);
  return one.wait(std::chrono::seconds{60}).at(0);
}
processes::report status(std::vector<std::string> words) {
  words.insert(words.begin(), "--status");
  return ask({tutti_run(), words, {}});
}

int repeats() {
  const char* count = std::getenv("TUTTI_TEST_REPEATS");
  return count ? std::atoi(count) : 1;
}

/// A job of four ranks in which rank 2 behaves in some way.
struct shown {
  temporary_directory home;
  processes job;

  explicit shown(const std::string& how, std::vector<std::string> words = {}, const char* transport = "automatic") {
    words.insert(words.end(), {"who=2", "how=" + how, std::string("transport=") + transport});
    command c = launched(4, "watched", words);
    c.arguments.insert(c.arguments.begin(), {"--grace", "1"});
    job.start(c);
  }
  [[nodiscard]] std::string pid() const { return std::to_string(job.pid(0)); }
  /// The status once it is as it should be; the last one if it never is.
  [[nodiscard]] json awaited(const std::function<bool(const json&)>& good) const {
    json v;
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{120};
         std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(std::chrono::milliseconds{50})) {
      const auto said = status({pid(), "--json"});
      if (said.status > 1) continue;  // the ranks have not been started yet
      v = json::parse(said.out);
      if (good(v)) break;
    }
    return v;
  }
  /// The status once ranks have waited for long.
  [[nodiscard]] json stuck() const {
    return awaited([](const json& v) { return v["verdict"] != "nothing" && v["verdict"] != "starting"; });
  }
  ~shown() { job.signal(0, SIGTERM); }
};

TEST_CASE("tutti-run --status: a rank that is stopped is named, with who waits for it") {
  for (int i = 0; i < repeats(); ++i)
    for (const char* transport : {"automatic", "tcp"}) {
      CAPTURE(i);
      CAPTURE(transport);
      const shown s{"stop", {}, transport};
      const json v = s.stuck();
      const std::string text = v.dump();
      CAPTURE(text);
      REQUIRE(v["ranks"].size() == 4);
      CHECK(v["verdict"] == "missing");
      CHECK(v["suspected"] == json::array({2}));
      CHECK(v["ranks"][2]["state"] == "stopped");
      CHECK(v["ranks"][2]["waits"] == false);
      CHECK(v["ranks"][0]["waits_for"] == json::array({2}));
      CHECK(v["ranks"][0]["seconds"].get<double>() > 0);
      CHECK(contains(v["ranks"][0]["call"].get<std::string>(), "#21 barrier watched.cpp:"));
      CHECK(contains(v["ranks"][2]["call"].get<std::string>(), "#20 all_reduce watched.cpp:"));
      CHECK(v["ranks"][2]["calls"].size() == 8);
      CHECK(contains(v["ranks"][2]["calls"][7]["call"].get<std::string>(), "(1000 x float32, max)"));
      // The process that is named is the rank that is stopped.
      std::ifstream file{"/proc/" + std::to_string(v["ranks"][2]["pid"].get<int>()) + "/cmdline"};
      std::string program;
      std::getline(file, program, '\0');
      CHECK(program.ends_with("tutti_program_watched"));
    }
}

TEST_CASE("tutti-run --status: a rank that hangs in its own code is named, and the table says so") {
  for (int i = 0; i < repeats(); ++i) {
    CAPTURE(i);
    const shown s{"hang"};
    const json v = s.stuck();
    const std::string text = v.dump();
    CAPTURE(text);
    CHECK(v["suspected"] == json::array({2}));
    CHECK(v["ranks"][2]["state"] == "own code");
    const auto table = status({s.pid()});
    CAPTURE(table.out);
    CHECK(table.status == 1);
    CHECK(table.out.starts_with("Rank 2 keeps the others waiting.\n"));
    CHECK(contains(table.out, "after #20 all_reduce watched.cpp:"));
    CHECK(contains(table.out, "own code"));
  }
}

TEST_CASE("tutti-run --status: a rank in another call is named, while it waits and after the world has failed") {
  for (int i = 0; i < repeats(); ++i) {
    CAPTURE(i);
    const shown receiving{"recv"};
    const json v = receiving.stuck();
    const std::string text = v.dump();
    CAPTURE(text);
    CHECK(v["verdict"] == "mismatch");
    CHECK(v["suspected"] == json::array({2}));
    CHECK(contains(v["ranks"][2]["call"].get<std::string>(), "recv from rank 0"));
    CHECK(v["ranks"][2]["waits_for"] == json::array({0}));
    for (const char* transport : {"automatic", "tcp"}) {
      CAPTURE(transport);
      const temporary_directory home;
      const shown other{"other", {"linger=" + home.file("end")}, transport};
      const json failed = other.awaited([](const json& j) {
        bool all = j["ranks"].size() == 4;
        for (const json& r : j["ranks"]) all = all && r["state"] == "failed";
        return all;
      });
      const std::string said = failed.dump();
      CAPTURE(said);
      CHECK(failed["failed"] == true);
      CHECK(failed["verdict"] == "mismatch");
      // Of two calls that differ, while the other ranks had made neither yet, nobody knows which is the wrong one.
      const auto made = std::ranges::count_if(
          failed["ranks"], [](const json& r) { return contains(r["call"].get<std::string>(), "#21 "); });
      CHECK(failed["suspected"] == (made > 2 ? json::array({2}) : json::array()));
    }
  }
}

TEST_CASE("tutti-run --status: a rank that is late in every call is named, with by how much") {
  for (int i = 0; i < repeats(); ++i) {
    CAPTURE(i);
    const shown s{"slow", {"calls=1000000", "late=50"}};
    const json v = s.awaited([](const json& j) { return j.value("compared", 0) >= 100 && j["late_rank"] != -1; });
    const std::string text = v.dump();
    CAPTURE(text);
    CHECK(v["verdict"] == "nothing");
    CHECK(v["late_rank"] == 2);
    CHECK(v["late_seconds"].get<double>() > 0.003);
    CHECK(v["ranks"][2]["last_in"].get<int>() > v["ranks"][0]["last_in"].get<int>());
    const auto table = status({s.pid()});
    CHECK_MESSAGE(contains(table.out, "Rank 2 is the last in "), table.out);
  }
}

TEST_CASE("tutti-run --status: a job that another launcher has started, and one whose ranks have not joined") {
  const temporary_directory home;
  processes all;
  const std::string url = "unix:@" + unique_name();
  start_ranks(all, "watched", 2, [&](int rank) {
    return rank_words{{at(url, rank, 2), "who=1", "how=hang", "until=" + home.file("end"), "calls=3"}, {}};
  });
  for (const std::size_t i : {0U, 1U}) REQUIRE(all.await(i, "called"));
  const auto said = status({std::to_string(all.pid(1)), "--json"});
  REQUIRE_MESSAGE(said.status <= 1, said.out);
  const json v = json::parse(said.out);
  CHECK(v["ranks"][0]["pid"] == all.pid(0));
  CHECK(v["ranks"][1]["state"] == "own code");
  std::ofstream{home.file("end")} << "";
  all.wait();

  processes job;
  job.start({tutti_run(), {"-n", "2", "--grace", "1", "--", "/bin/sh", "-c", "echo up; exec sleep 1000"}, {}});
  for (const char* rank : {"[0] up", "[1] up"}) REQUIRE(job.await(0, rank));
  const auto early = status({std::to_string(job.pid(0)), "--json"});
  REQUIRE_MESSAGE(early.status == 0, early.out);
  const json starting = json::parse(early.out);
  CHECK(starting["verdict"] == "starting");
  CHECK(starting["ranks"].size() == 2);
  CHECK(starting["ranks"][1]["state"] == "starting");
  job.signal(0, SIGTERM);
  job.wait();
  const auto over = status({std::to_string(job.pid(0)), "--json"});
  CHECK(over.status == 2);
}

TEST_CASE("tutti-run --status: mistakes are refused, and of several jobs one must be named") {
  CHECK(status({"--nonsense"}).status == 2);
  CHECK(status({"-3"}).status == 2);
  CHECK(status({"1", "2"}).status == 2);
  const auto nobody = status({"2147483646"});
  CHECK(nobody.status == 2);
  CHECK(contains(nobody.out, "there is no process 2147483646"));
  const auto late = ask({tutti_run(), {"-n", "2", "--status", "true"}, {}});
  CHECK(late.status == 2);
  CHECK(contains(late.out, "write it first"));
  const shown one{"hang"}, two{"hang"};
  static_cast<void>(one.stuck());
  static_cast<void>(two.stuck());
  const auto several = status({});
  CHECK(several.status == 2);
  CHECK(contains(several.out, "  " + one.pid() + "  "));
  CHECK(contains(several.out, "  " + two.pid() + "  "));
}

TEST_CASE("tutti-run --status: another user is refused") {
  if (::geteuid() != 0 || ::access("/usr/bin/setpriv", X_OK) != 0) {
    MESSAGE("skipped: only root can be another user, by setpriv");
    return;
  }
  const temporary_directory home;
  ::chmod(home.path().c_str(), 0755);
  const std::string tool = home.file("tutti-run");
  std::filesystem::copy_file(tutti_run(), tool);
  ::chmod(tool.c_str(), 0755);
  const auto as_other_user = [&](const std::string& pid) {
    return ask(
        {"/usr/bin/setpriv", {"--reuid", "65534", "--regid", "65534", "--clear-groups", tool, "--status", pid}, {}});
  };
  const shown s{"hang"};
  const json v = s.stuck();
  for (const std::string& pid : {s.pid(), std::to_string(v["ranks"][2]["pid"].get<int>())}) {
    const auto refused = as_other_user(pid);
    CHECK(refused.status == 2);
    CHECK_MESSAGE(contains(refused.out, "belongs to another user (root, uid 0)"), refused.out);
    CHECK(!contains(refused.out, "all_reduce"));
  }
}

TEST_CASE("tutti-run --status: a job on two machines, from the machine of its tutti-run" * doctest::test_suite("ssh")) {
  const ssh_machines machines;
  if (!machines.why_not().empty()) {
    MESSAGE("skipped: " << machines.why_not());
    return;
  }
  processes job;
  job.start(machines.launcher(
      0, {"--hosts", "node0:2,node1:2", "--grace", "1", "--", program("watched"), "who=2", "how=stop"}));
  const std::string pid = std::to_string(job.pid(0));
  json v;
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{120};
       std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(std::chrono::milliseconds{50})) {
    const auto said = ask(machines.pair().run(0, tutti_run(), {"--status", pid, "--json"}));
    if (said.status > 1) continue;
    v = json::parse(said.out);
    if (v["verdict"] != "nothing" && v["verdict"] != "starting") break;
  }
  const std::string text = v.dump();
  CAPTURE(text);
  REQUIRE(v["ranks"].size() == 4);
  CHECK(v["suspected"] == json::array({2}));
  CHECK(v["ranks"][2]["state"] == "stopped");
  CHECK(v["ranks"][2]["host"] == "node1");
  CHECK(v["ranks"][1]["host"] == "node0");
  CHECK(v["ranks"][1]["waits_for"] == json::array({2}));
  CHECK(v["silent_machines"].empty());
  if (::access("/usr/bin/setpriv", X_OK) == 0) {
    const auto refused = ask(
        machines.pair().run(0, "/usr/bin/setpriv",
                            {"--reuid", "65534", "--regid", "65534", "--clear-groups", tutti_run(), "--status", pid}));
    CHECK(refused.status != 0);
    CHECK_FALSE(contains(refused.out, "barrier"));
  }
  job.signal(0, SIGTERM);
  job.wait();
  CHECK(machines.become_idle(std::chrono::seconds{10}));
}

}  // namespace
