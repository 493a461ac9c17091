#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "process/worlds.hpp"
#include "support/grid.hpp"
#include "support/temporary_directory.hpp"

// One rank of a job is stuck, in another call, or slow: each time, everything that names a rank must name that one.
// TUTTI_TEST_REPEATS=100 goes through each of them 100 times, with ranks that are 5 ms late, for a machine that has
// nothing else to do: else they are late by more than other programs may delay a rank.
namespace {

using namespace tutti_test;
using nlohmann::json;

constexpr int ranks = 4;

int repeats() {
  const char* const text = std::getenv("TUTTI_TEST_REPEATS");
  return text != nullptr ? std::atoi(text) : reduced() ? 2 : 5;
}
std::string late() { return std::getenv("TUTTI_TEST_REPEATS") != nullptr ? "late=5" : "late=50"; }

struct tally {
  std::string what;
  int right = 0, all = 0;
  std::string first_wrong = {};

  void count(bool good, const std::string& evidence) {
    ++all;
    right += good ? 1 : 0;
    if (!good && first_wrong.empty()) first_wrong = evidence;
  }
  ~tally() {
    std::printf("%s: %d of %d\n", what.c_str(), right, all);
    CHECK_MESSAGE(right == all, what << ": " << first_wrong);
  }
};

json verdict(const std::string& folder) {
  processes one;
  one.start({TUTTI_TOOL_DIR "/tutti-flight", {"--json", "--patience", "0.3", folder}, {}});
  const auto said = one.wait(std::chrono::seconds{60}).at(0);
  return json::parse(said.out, nullptr, false);
}
/// The verdict of a job that hangs: the first one that is more than "nothing".
json awaited_verdict(const std::string& folder) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{120};
  json v;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    v = verdict(folder);
  } while ((!v.is_object() || v["verdict"] == "nothing") && std::chrono::steady_clock::now() < until);
  return v;
}

/// A job in which rank `odd` behaves in some way, and where it leaves what it records.
struct job {
  temporary_directory home;
  std::string folder = home.file("out"), odd_rank;
  int odd;
  processes all;

  job(int i, const std::string& how, const std::vector<std::string>& more, const std::string& warn_after)
      : odd_rank("rank " + std::to_string(1 + i % (ranks - 1))), odd(1 + i % (ranks - 1)) {
    std::vector<std::string> words{"who=" + std::to_string(odd), "how=" + how,
                                   i % 2 == 0 ? "transport=automatic" : "transport=tcp"};
    words.insert(words.end(), more.begin(), more.end());
    command c = launched(ranks, "watched", words, {"TUTTI_STALL_WARNING=" + warn_after});
    c.arguments.insert(c.arguments.begin(), {"--grace", "1", "--flight", folder, "--metrics", folder});
    all.start(c);
  }
  ~job() { all.signal(0, SIGTERM); }

  /// True if a warning says of the odd rank that it has not made the call, and what it did instead, and if no warning
  /// says so of another one.
  [[nodiscard]] bool warned(const std::string& instead) {
    if (!all.await(0, ", has not called it: " + instead, std::chrono::seconds{120})) return false;
    const std::string& out = all.out(0);
    for (auto at = out.find("tutti: warning: "); at != std::string::npos; at = out.find("tutti: warning: ", at + 1)) {
      const std::string line = out.substr(at, out.find('\n', at) - at);
      if (!contains(line, "has not called it")) continue;
      if (!contains(line, ": " + odd_rank + " (host ") || occurrences(line, "has not called it") != 1) return false;
    }
    return true;
  }
};

/// The sum of the waits of a rank's operations, of its metrics.
double waited(const std::string& folder, int rank) {
  double sum = 0;
  for (const auto& one : std::filesystem::directory_iterator{folder}) {
    if (!one.path().string().ends_with("rank_" + std::to_string(rank) + ".prom")) continue;
    std::ifstream file{one.path()};
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("tutti_operation_wait_seconds_total{")) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

TEST_CASE("named: a rank that is stopped" * doctest::test_suite("grid")) {
  tally by_verdict{"stopped, by the verdict"}, by_warning{"stopped, by the warnings"};
  for (int i = 0; i < repeats(); ++i) {
    job j{i, "stop", {}, "1"};
    by_warning.count(j.warned("its last call, all_reduce #20 (watched.cpp:"), j.all.out(0));
    const json v = awaited_verdict(j.folder);
    by_verdict.count(v["verdict"] == "missing" && v["suspected"] == json::array({j.odd}) &&
                         v["ranks"][static_cast<std::size_t>(j.odd)]["stopped"] == true,
                     v.dump());
  }
}

TEST_CASE("named: a rank in another call" * doctest::test_suite("grid")) {
  tally by_verdict{"in a receive, by the verdict"}, by_warning{"in a receive, by the warnings"};
  tally after{"in another collective, by the verdict after the failure"};
  for (int i = 0; i < repeats(); ++i) {
    {
      job j{i, "recv", {}, "1"};
      by_warning.count(j.warned("it has been in recv #1 (watched.cpp:"), j.all.out(0));
      const json v = awaited_verdict(j.folder);
      by_verdict.count(v["suspected"] == json::array({j.odd}), v.dump());
    }
    job j{i, "other", {}, "30"};
    j.all.wait(std::chrono::seconds{120});
    const json v = verdict(j.folder);
    // Of two calls that differ, while the other ranks had made neither yet, nobody knows which is the wrong one.
    const auto made =
        std::ranges::count_if(v["ranks"], [](const json& r) { return contains(r["call"].get<std::string>(), "#21 "); });
    after.count(v["verdict"] == "mismatch" && v["suspected"] == (made > 2 ? json::array({j.odd}) : json::array()),
                v.dump());
  }
}

TEST_CASE("named: a rank that comes late" * doctest::test_suite("grid")) {
  tally by_skew{"slow, by the verdict"}, by_histogram{"slow, by the histograms"}, by_metrics{"slow, by the metrics"};
  for (int i = 0; i < repeats(); ++i) {
    job j{i, "slow", {"calls=60", late()}, "30"};
    j.all.wait(std::chrono::seconds{120});
    const json v = verdict(j.folder);
    by_skew.count(v["verdict"] == "nothing" && v["late_rank"] == j.odd, v.dump());
    // Of most calls, it came more than 1 ms after the first.
    const json& within = v["skew"]["collectives"]["ranks"][static_cast<std::size_t>(j.odd)]["within"];
    int late = 0;
    for (std::size_t k = 3; k < within.size(); ++k) late += within[k].get<int>();
    by_histogram.count(late >= 45, v.dump());
    std::vector<double> all;
    for (int r = 0; r < ranks; ++r) all.push_back(waited(j.folder, r));
    by_metrics.count(std::ranges::min_element(all) - all.begin() == j.odd, json(all).dump());
  }
}

TEST_CASE("named: a rank that comes late with one bucket of a reducer" * doctest::test_suite("grid")) {
  tally by_bucket{"late with a bucket, by its number"}, by_buckets{"late with a bucket, among all buckets"};
  for (int i = 0; i < repeats(); ++i) {
    const temporary_directory home;
    const int odd = 1 + i % (ranks - 1);
    processes all;
    command c = launched(
        ranks, "passes",
        {"who=" + std::to_string(odd), "passes=20", late(), i % 2 == 0 ? "transport=automatic" : "transport=tcp"});
    c.arguments.insert(c.arguments.begin(), {"--flight", home.path().string()});
    all.start(c);
    all.wait(std::chrono::seconds{120});
    const json v = verdict(home.path().string());
    const json& skew = v["skew"];
    by_bucket.count(skew["by_bucket"].size() == 3 && skew["by_bucket"][1]["late_rank"] == odd, v.dump());
    by_buckets.count(skew["buckets"]["compared"] == 60 && skew["buckets"]["late_rank"] == odd, v.dump());
  }
}

}  // namespace
