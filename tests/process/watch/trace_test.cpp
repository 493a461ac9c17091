#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// Traces and metrics of a real job, and the trace of all ranks that tutti-flight makes of them.
namespace {

using namespace tutti_test;
using nlohmann::json;

json read(const std::string& path) {
  std::ifstream file{path};
  REQUIRE_MESSAGE(file.good(), path);
  return json::parse(file);
}

/// The rules of Chrome's trace events, as far as these files use them.
void check_events(const json& events) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> slices;
  std::map<int, int> begun, ended;
  for (const json& e : events) {
    const std::string text = e.dump();
    CAPTURE(text);
    REQUIRE(e["pid"].is_number_integer());
    REQUIRE(e["tid"].is_number_integer());
    REQUIRE_FALSE(e["name"].get<std::string>().empty());
    const std::string phase = e["ph"];
    REQUIRE((phase == "X" || phase == "M" || phase == "s" || phase == "f"));
    if (phase == "M") continue;
    REQUIRE(e["ts"].is_number());
    REQUIRE_FALSE(e["cat"].get<std::string>().empty());
    if (phase == "s") ++begun[e["id"]];
    if (phase == "f") {
      ++ended[e["id"]];
      CHECK(e["bp"] == "e");
    }
    if (phase != "X") continue;
    CHECK(e["dur"] >= 0);
    slices[{e["pid"], e["tid"]}].emplace_back(e["ts"], e["ts"].get<double>() + e["dur"].get<double>());
  }
  CHECK(begun == ended);
  for (const auto& [id, times] : begun) CHECK(times == 1);
  // Slices of a thread nest.
  for (auto& [thread, all] : slices) {
    std::ranges::sort(
        all, [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
    std::vector<double> open;
    for (const auto& [from, until] : all) {
      while (!open.empty() && open.back() <= from + 0.0005) open.pop_back();  // as a double has microseconds of a day
      if (!open.empty()) CHECK(until <= open.back() + 0.002);
      open.push_back(until);
    }
  }
}

TEST_CASE("trace and metrics: one file of each rank, by an option of tutti-run, and one trace of all") {
  const temporary_directory home;
  const std::string folder = home.file("out");
  processes job;
  command c = launched(3, "watched", {"who=2", "how=slow", "calls=30"});
  c.arguments.insert(c.arguments.begin(), {"--trace", folder, "--metrics", folder});
  c.environment.push_back("TUTTI_METRICS_JOB=a");
  job.start(c);
  const auto said = job.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(said.out);
  REQUIRE(said.status == 0);
  for (int r = 0; r < 3; ++r) {
    const json events = read(folder + "/trace_" + std::to_string(r) + ".json");
    check_events(events);
    CHECK(std::ranges::count_if(events, [](const json& e) { return e["name"] == "all_reduce"; }) == 30);
    CHECK(std::ranges::count_if(events, [](const json& e) { return e["name"] == "barrier"; }) == 1);
    std::ifstream metrics{folder + "/tutti_a_rank_" + std::to_string(r) + ".prom"};
    const std::string text{std::istreambuf_iterator<char>{metrics}, {}};
    CAPTURE(text);
    CHECK(contains(text, "tutti_operation_duration_seconds_count{job_name=\"a\",rank=\"" + std::to_string(r) +
                             "\",call=\"all_reduce\"} 30\n"));
  }

  processes merge;
  merge.start({TUTTI_TOOL_DIR "/tutti-flight", {"--merge-trace", folder}, {}});
  const auto merged = merge.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(merged.out);
  REQUIRE(merged.status == 0);
  CHECK(contains(merged.out, "trace.json: 3 of 3 ranks, "));
  const json all = read(folder + "/trace.json");
  check_events(all["traceEvents"]);
  std::set<int> ranks;
  std::map<int, int> late;
  for (const json& e : all["traceEvents"]) {
    ranks.insert(e["pid"].get<int>());
    if (e["ph"] == "s") ++late[e["pid"]];
  }
  CHECK(ranks == std::set<int>{0, 1, 2});
  // The slow rank is the last more often than the others, also on a busy machine; arrows begin there.
  CHECK(late[2] > late[0]);
  CHECK(late[2] > late[1]);
}

TEST_CASE("trace: a trainer's step, with its passes and buckets, and the waits and the computation of its thread") {
  const temporary_directory home;
  const std::string folder = home.file("out");
  processes job;
  command c = launched(2, "passes", {"who=1", "passes=10"});
  c.arguments.insert(c.arguments.begin(), {"--trace", folder});
  job.start(c);
  const auto said = job.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(said.out);
  REQUIRE(said.status == 0);
  processes merge;
  merge.start({TUTTI_TOOL_DIR "/tutti-flight", {"--merge-trace", folder}, {}});
  REQUIRE(merge.wait(std::chrono::seconds{60}).at(0).status == 0);
  const json all = read(folder + "/trace.json")["traceEvents"];
  check_events(all);
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    check_events(read(folder + "/trace_" + std::to_string(rank) + ".json"));
    std::map<std::string, int> slices;
    std::map<std::string, std::set<int>> threads;
    std::map<int, int> collectives;
    double late = 0, computed = 0;
    for (const json& e : all) {
      if (e["pid"] != rank) continue;
      if (e["name"] == "thread_name") threads[e["args"]["name"]].insert(e["tid"].get<int>());
      if (e["ph"] != "X") continue;
      ++slices[e["name"]];
      if (e["cat"] == "collective") ++collectives[e["args"].value("bucket", -1)];
      if (e["cat"] == "computation") computed += e["dur"].get<double>();
      if (e["name"] == "bucket 1") late += e["dur"].get<double>();
    }
    for (const char* name : {"bucket 0", "bucket 1", "bucket 2", "finish"}) CHECK(slices[name] == 10);
    for (int bucket = 0; bucket < 3; ++bucket) CHECK(collectives[bucket] == 10);
    CHECK(slices["ready"] == 30);
    CHECK(slices["in flight"] == 30);
    CHECK(slices["pass 10"] == 1);
    CHECK(threads["thread"].size() == 1);
    CHECK(threads["passes"].size() == 1);
    // Rank 1 computes for 5 ms before its second bucket; rank 0 has launched it by then.
    if (rank == 1) CHECK(computed > 10 * 5000);
    if (rank == 0) CHECK(late > 10 * 4000);
  }
}

TEST_CASE("trace: the file of a rank that was killed can be read, and merged") {
  const temporary_directory home;
  processes job;
  job.start(launched(3, "watched", {"who=1", "how=die", "calls=300"}, {"TUTTI_TRACE_DIR=" + home.file("out")}));
  job.wait(std::chrono::seconds{60});
  std::ifstream file{home.file("out/trace_1.json")};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (const auto end = text.rfind('}'); end != std::string::npos) text.resize(end + 1);
  check_events(json::parse(text + "]"));
  processes merge;
  merge.start({TUTTI_TOOL_DIR "/tutti-flight", {"--merge-trace", home.file("out")}, {}});
  CHECK(merge.wait(std::chrono::seconds{60}).at(0).status == 0);
  check_events(read(home.file("out/trace.json"))["traceEvents"]);
}

TEST_CASE("trace: of two jobs in one folder the last one is merged, and the other's files are counted") {
  const temporary_directory home;
  for (const int ranks : {3, 2}) {
    processes job;
    job.start(launched(ranks, "watched", {"how=well"}, {"TUTTI_TRACE_DIR=" + home.file("out")}));
    REQUIRE(job.wait(std::chrono::seconds{60}).at(0).status == 0);
  }
  processes merge;
  merge.start({TUTTI_TOOL_DIR "/tutti-flight", {"--merge-trace", home.file("out")}, {}});
  const auto merged = merge.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(merged.out);
  CHECK(merged.status == 0);
  CHECK(contains(merged.out, "trace.json: 2 of 2 ranks, "));
  CHECK(contains(merged.out, "left out: 1 traces of other worlds"));
  const json all = read(home.file("out/trace.json"));
  for (const json& e : all["traceEvents"]) CHECK(e["pid"] < 2);
}

}  // namespace
