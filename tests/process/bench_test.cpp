#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

/// tutti-bench on memory of the host, as a user starts it.
namespace {
using namespace tutti_test;

const std::string program_path = TUTTI_BENCH_DIR "/tutti-bench";

processes::report bench(int ranks, std::vector<std::string> words) {
  words.insert(words.begin(), {"-n", std::to_string(ranks), "--output", "plain", "--", program_path});
  processes started;
  started.start({tutti_run(), std::move(words), {}});
  return started.wait(std::chrono::seconds{100}).front();
}

/// -DTUTTI_BUILD_BENCH=OFF
bool is_built() {
  const bool is = ::access(program_path.c_str(), X_OK) == 0;
  if (!is) MESSAGE("skipped: there is no " << program_path);
  return is;
}

}  // namespace

TEST_CASE("tutti-bench times each collective, in both kinds of memory, and finds its results right" *
          doctest::test_suite("bench")) {
  if (!is_built()) return;
  struct {
    std::string name, row, in_place;
  } const all[] = {{"all_reduce", "1008           252     float     max      -1", "0"},
                   {"broadcast", "1008           252     float    none       1", "0"},
                   {"reduce", "1008           252     float     max       1", "0"},
                   {"all_gather", "1008            84     float    none      -1", "0"},
                   {"reduce_scatter", "1008            84     float     max      -1", "0"},
                   {"gather", "1008            84     float    none       1", "0"},
                   {"scatter", "1008            84     float    none       1", "0"},
                   {"all_to_all", "1008            84     float    none      -1", "N/A"},
                   {"sendrecv", "1008           252     float    none      -1", "N/A"},
                   {"barrier", "0             0     float    none      -1", "0"}};
  for (const auto& each : all) {
    for (const char* memory : {"0", "1", "2"}) {
      CAPTURE(each.name);
      CAPTURE(memory);
      const auto done = bench(3, {each.name, "-b", "1008", "-e", "1008", "-r", "1", "-o", "max", "-n", "2", "-m", "2",
                                  "-w", "1", "-R", memory});
      CHECK_MESSAGE(done.status == 0, done.out);
      const auto row = done.out.find(each.row);
      REQUIRE_MESSAGE(row != std::string::npos, done.out);
      const auto line = done.out.substr(row, done.out.find('\n', row) - row);
      CHECK_MESSAGE(line.ends_with("  " + each.in_place), line);
      CHECK_MESSAGE(contains(done.out, "# Out of bounds values : 0 OK"), done.out);
    }
  }
}

TEST_CASE("tutti-bench sweeps sizes of scans, lists and blocks of any lengths, and finds their results right" *
          doctest::test_suite("bench")) {
  if (!is_built()) return;
  for (const std::string name : {"scan", "exclusive_scan", "all_reduce_coalesced", "all_gather_v", "reduce_scatter_v",
                                 "gather_v", "scatter_v", "all_to_all_v"}) {
    CAPTURE(name);
    const auto done = bench(3, {name, "-b", "48", "-e", "3M", "-f", "16", "-n", "2", "-w", "1", "-R", "2"});
    CHECK_MESSAGE(done.status == 0, done.out);
    for (const char* bytes : {" 48 ", " 12288 ", " 3145728 "}) CHECK_MESSAGE(contains(done.out, bytes), done.out);
    CHECK_MESSAGE(contains(done.out, "# Out of bounds values : 0 OK"), done.out);
  }
}

TEST_CASE("tutti-bench reduces in every type by every reduction, and asks for an algorithm" *
          doctest::test_suite("bench")) {
  if (!is_built()) return;
  for (const std::string type : {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "bfloat16", "float",
                                 "double", "f8e4m3", "f8e5m2"})
    for (const std::string op : {"sum", "prod", "max", "min", "avg"}) {
      CAPTURE(type);
      CAPTURE(op);
      const auto done =
          bench(2, {"reduce_scatter", "-b", "4K", "-e", "4K", "-d", type, "-o", op, "-n", "1", "-w", "0"});
      CHECK_MESSAGE(done.status == 0, done.out);
      CHECK_MESSAGE(contains(done.out, "# Out of bounds values : 0 OK"), done.out);
    }
  const auto ring = bench(3, {"all_gather", "--algo", "ring", "-b", "4K", "-e", "4K"});
  CHECK_MESSAGE(ring.status == 0, ring.out);
  CHECK_MESSAGE(contains(ring.out, "algorithm: ring"), ring.out);
}

TEST_CASE("tutti-bench says what cannot be timed" * doctest::test_suite("bench")) {
  if (!is_built()) return;
  const auto alone = bench(1, {"sendrecv"});
  CHECK(alone.status != 0);
  CHECK_MESSAGE(contains(alone.out, "sendrecv needs two ranks or more"), alone.out);
  const auto lacking = bench(2, {"all_to_all", "--algo", "ring"});
  CHECK(lacking.status != 0);
  CHECK_MESSAGE(contains(lacking.out, "all_to_all"), lacking.out);
  const auto root = bench(2, {"gather", "-r", "2"});
  CHECK(root.status != 0);
  CHECK_MESSAGE(contains(root.out, "--root 2 is not a rank of this world of 2"), root.out);
}

namespace {

processes::report run(const std::string& program, std::vector<std::string> words) {
  processes started;
  started.start({program, std::move(words), {}});
  return started.wait(std::chrono::seconds{100}).front();
}

/// Returns the calls of the recordings of two ranks that were issued in a function whose name contains a text.
std::vector<std::string> calls_in(const temporary_directory& folder, const std::string& issued_in) {
  std::vector<std::string> calls;
  for (const char* rank : {"0", "1"}) {
    std::ifstream file{folder.file("rank_" + std::string(rank) + ".json")};
    const auto all = nlohmann::json::parse(file);
    for (const auto& e : all["entries"]) {
      if (e["frames"].empty() || e["state"] != "completed" || e["tutti"]["call"] == "close") continue;
      if (!contains(e["frames"][0]["name"].get<std::string>(), issued_in)) continue;
      const auto& own = e["tutti"];
      std::string text = rank;
      for (const char* key : {"call", "count", "dtype", "reduction"}) text += ' ' + own[key].dump();
      if (own["call"] != "barrier")
        text += ' ' + own["algorithm"].dump();  // which takes none, and is recorded by how it went
      calls.push_back(text + ' ' + own[own.contains("peer") ? "peer" : "root"].dump());
    }
  }
  return calls;
}

}  // namespace

TEST_CASE("tutti-bench --replay makes the calls of a recording again, in their order" * doctest::test_suite("bench")) {
  if (!is_built()) return;
  const std::string flight = TUTTI_TOOL_DIR "/tutti-flight";
  for (const std::string name :
       {"all_reduce", "reduce", "reduce_scatter", "scan", "exclusive_scan", "broadcast", "all_gather", "gather",
        "gather_v", "scatter", "scatter_v", "all_to_all", "barrier", "all_reduce_coalesced", "sendrecv"})
    for (const std::string machines : {"1", "2"}) {
      CAPTURE(name);
      CAPTURE(machines);
      const temporary_directory first, second;
      const auto recorded = [&](const temporary_directory& folder, std::vector<std::string> words) {
        words.insert(words.begin(), {"-n", "2", "--output", "plain", "--flight", folder.path().string(), "--",
                                     program_path, "--machines", machines});
        const auto done = run(tutti_run(), std::move(words));
        CHECK_MESSAGE(done.status == 0, done.out);
        CHECK(run(flight, {"--dump", folder.path().string()}).status == 0);
        return done.out;
      };
      recorded(first, {name, "-b", "64", "-e", "256K", "-f", "64", "-o", "max", "-r", "1", "-m", "2", "-n", "2", "-w",
                       "0", "-c", "0"});
      const std::string table = recorded(second, {"--replay", first.path().string(), "--gaps"});
      CHECK_MESSAGE(contains(table, "# Replay of " + first.path().string() + ": 2 ranks"), table);
      CHECK_MESSAGE(contains(table, name == "sendrecv" ? "send" : name), table);
      const auto made = calls_in(second, "recorded_group::begin"), wanted = calls_in(first, "");
      CHECK(made.size() > 4);
      CHECK(made == wanted);
    }
}

TEST_CASE("tutti-bench --replay says what it lacks" * doctest::test_suite("bench")) {
  if (!is_built()) return;
  const temporary_directory folder;
  const auto none = bench(2, {"--replay", folder.path().string()});
  CHECK(none.status != 0);
  CHECK_MESSAGE(contains(none.out, "there is no rank_<rank>.json in it; tutti-flight --dump"), none.out);
  const auto gaps = bench(1, {"--gaps"});
  CHECK(gaps.status != 0);
  CHECK_MESSAGE(contains(gaps.out, "--gaps goes with --replay"), gaps.out);
}
