#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// A rank that is stopped, hangs, calls something else, dies, or is slow, as tutti-flight sees it from outside.
namespace {

using namespace tutti_test;
using nlohmann::json;

processes::report flight(const std::vector<std::string>& words) {
  processes one;
  one.start({TUTTI_TOOL_DIR "/tutti-flight", words, {}});
  return one.wait(std::chrono::seconds{30}).at(0);
}
json verdict(const std::string& folder) {
  const auto said = flight({"--json", "--patience", "0.3", folder});
  CAPTURE(said.out);
  REQUIRE(said.status <= 1);
  return json::parse(said.out);
}

/// A job of four ranks with a folder for their recordings, in which rank 2 behaves in some way.
struct watched {
  temporary_directory home;
  std::string folder = home.file("flight");
  processes job;

  explicit watched(const std::string& how, std::vector<std::string> words = {}, const char* transport = "automatic") {
    words.insert(words.end(), {"who=2", "how=" + how, std::string("transport=") + transport});
    command c = launched(4, "watched", words);
    c.arguments.insert(c.arguments.begin(), {"--grace", "1", "--flight", folder});
    job.start(c);
  }
  /// The verdict once there is one.
  [[nodiscard]] json awaited() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{120};
    json v;
    do {
      if (std::filesystem::exists(folder + "/rank_3.ring")) v = verdict(folder);
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
    } while ((v.is_null() || v["verdict"] == "nothing" || v["ranks"][0]["waits"] == false) &&
             std::chrono::steady_clock::now() < until);
    return v;
  }
  ~watched() { job.signal(0, SIGTERM); }
};

TEST_CASE("tutti-flight: a rank that is stopped is named while the job hangs, and after its deadline") {
  for (const char* transport : {"automatic", "tcp"}) {
    CAPTURE(transport);
    watched w{"stop", {"timeout=8000"}, transport};
    const json v = w.awaited();
    const std::string text = v.dump();
    CAPTURE(text);
    CHECK(v["verdict"] == "missing");
    CHECK(v["suspected"] == json::array({2}));
    CHECK(v["ranks"][2]["stopped"] == true);
    CHECK(contains(v["ranks"][0]["call"].get<std::string>(), "#21 barrier watched.cpp:"));
    CHECK(contains(v["ranks"][2]["call"].get<std::string>(), "#20 all_reduce watched.cpp:"));
    const auto all = w.job.wait(std::chrono::seconds{60});
    CHECK(all[0].status != 0);
    const json after = verdict(w.folder);
    CHECK(after["failed"] == true);
    CHECK(after["suspected"] == json::array({2}));
  }
}

TEST_CASE("tutti-flight: a rank that hangs in its own code is named") {
  watched w{"hang"};
  const json v = w.awaited();
  const std::string text = v.dump();
  CAPTURE(text);
  CHECK(v["verdict"] == "missing");
  CHECK(v["suspected"] == json::array({2}));
  CHECK(v["ranks"][2]["stopped"] == false);
}

TEST_CASE("tutti-flight: a rank that called something else is named after the world has failed") {
  for (const char* transport : {"automatic", "tcp"}) {
    CAPTURE(transport);
    watched w{"other", {}, transport};
    w.job.wait(std::chrono::seconds{60});
    const json v = verdict(w.folder);
    const std::string text = v.dump();
    CAPTURE(text);
    CHECK(v["verdict"] == "mismatch");
    CHECK(v["suspected"] == json::array({2}));
    CHECK(contains(v["ranks"][2]["call"].get<std::string>(), "#21 broadcast"));
  }
}

TEST_CASE("tutti-flight: a rank that died is named") {
  watched w{"die"};
  w.job.wait(std::chrono::seconds{60});
  const json v = verdict(w.folder);
  const std::string text = v.dump();
  CAPTURE(text);
  CHECK(v["verdict"] == "lost");
  CHECK(v["suspected"] == json::array({2}));
}

TEST_CASE("tutti-flight: a rank that is late in every call is named, though nothing is stuck") {
  watched w{"slow", {"calls=200"}};
  CHECK(w.job.wait(std::chrono::seconds{60})[0].status == 0);
  const json v = verdict(w.folder);
  const std::string text = v.dump();
  CAPTURE(text);
  CHECK(v["verdict"] == "nothing");
  CHECK(v["late_rank"] == 2);
}

TEST_CASE("tutti-flight: a failure leaves files that Python reads, by the schema of PyTorch's flight recorder") {
  watched w{"hang", {"timeout=500"}};
  w.job.wait(std::chrono::seconds{60});
  CHECK(std::filesystem::exists(w.folder + "/flight_0"));
  // The rank that hangs could not write any.
  CHECK_FALSE(std::filesystem::exists(w.folder + "/flight_2"));
  CHECK(flight({"--dump", w.folder}).status == 1);
  processes check;
  check.start(
      {"/usr/bin/env", {"python3", TUTTI_SOURCE_DIR "/tests/process/watch/flight_schema.py", w.folder, "4"}, {}});
  const auto said = check.wait(std::chrono::seconds{60}).at(0);
  CHECK_MESSAGE(said.status == 0, said.out);
  if (contains(said.out, "skipped")) MESSAGE(said.out);
}

TEST_CASE("tutti-flight: a world dumps on request, and a folder that nobody can make is refused by all ranks") {
  const temporary_directory home;
  processes job;
  job.start(launched(2, "watched", {"calls=3", "dump=" + home.file("asked")}));
  CHECK(job.wait(std::chrono::seconds{60}).at(0).status == 0);
  for (const char* name : {"/flight_0", "/flight_1", "/rank_0.json", "/rank_1.ring"})
    CHECK(std::filesystem::exists(home.file("asked") + name));
  const auto said = flight({home.file("asked")});
  CAPTURE(said.out);
  CHECK(said.status == 0);

  processes refused;
  command c = launched(2, "watched", {});
  c.arguments.insert(c.arguments.begin(), {"--flight", "/proc/nowhere"});
  refused.start(c);
  const auto why = refused.wait(std::chrono::seconds{60}).at(0);
  CHECK(why.status == 1);
  CHECK(occurrences(why.out, "TUTTI_FLIGHT_DIR \"/proc/nowhere\" is no folder that this rank can write to") >= 1);
}

TEST_CASE("tutti-flight: ranks that have joined different numbers of worlds are in one world") {
  const watched w{"stop", {"alone=2"}};
  const json v = w.awaited();
  const std::string text = v.dump();
  CAPTURE(text);
  REQUIRE(v["ranks"].size() == 4);
  CHECK(v["verdict"] == "missing");
  CHECK(v["suspected"] == json::array({2}));
  CHECK(v["ranks"][2]["state"] == "stopped");
  CHECK(std::filesystem::exists(w.folder + "/rank_2.world2.ring"));
}

TEST_CASE("tutti-flight: mistakes on its command line are refused, with status 2") {
  const temporary_directory home;
  CHECK(flight({}).status == 2);
  CHECK(flight({"--nonsense", "."}).status == 2);
  CHECK(flight({"--patience", "soon", "."}).status == 2);
  const auto empty = flight({home.path().string()});
  CHECK(empty.status == 2);
  CHECK(contains(empty.out, "holds no recording"));
  CHECK(flight({home.file("missing")}).status == 2);
  CHECK(flight({"--help"}).status == 0);
}

}  // namespace
