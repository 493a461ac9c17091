#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/temporary_directory.hpp"
#include "tutti-flight/trace.hpp"

// Traces that are made up, as tutti-flight --merge-trace reads them.
namespace {

using namespace tutti::flight_tool;

/// A trace of one collective that ends `at` microseconds after the base.
std::string trace(int rank, const std::string& world, std::int64_t at, const std::string& more = ",\"world_size\":2") {
  const std::string pid = std::to_string(rank);
  return "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + pid +
         ",\"tid\":0,\"args\":{\"base_ns\":\"1000000000\",\"boot\":\"b\",\"world\":\"" + world + "\"" + more +
         "}},\n{\"ts\":" + std::to_string(at) + ",\"dur\":1.5,\"ph\":\"X\",\"pid\":" + pid +
         ",\"tid\":5,\"cat\":\"collective\",\"name\":\"all_reduce\",\"args\":{\"sequence\":1,\"group\":0}}";
}
struct traces {
  tutti_test::temporary_directory home;
  void write(const char* name, const std::string& text) const { std::ofstream{home.file(name)} << text; }
  [[nodiscard]] merged_trace merged() const { return merge_traces(home.path().string()); }
  [[nodiscard]] std::string error() const {
    try {
      static_cast<void>(merged());
    } catch (const std::runtime_error& why) {
      return why.what();
    }
    return "";
  }
};

TEST_CASE("tutti-flight --merge-trace: of the worlds of a folder, the one whose last event is the latest is taken") {
  const traces t;
  t.write("trace_0.world2.json", trace(0, "second", 900));
  t.write("trace_1.world2.json", trace(1, "second", 800));
  t.write("trace_0.json", trace(0, "first", 400));
  t.write("trace_1.json", trace(1, "first", 500));  // the newest file, as after a copy
  const merged_trace made = t.merged();
  CHECK(made.ranks == 2);
  CHECK(made.left_out == 2);
  std::ifstream file{t.home.file("trace.json")};
  const auto all = nlohmann::json::parse(file);
  for (const auto& e : all["traceEvents"])
    if (e["name"] == "process_name") CHECK(e["args"]["world"] == "second");
  CHECK(in_words(made) == t.home.file("trace.json") +
                              ": 2 of 2 ranks, 6 events; open it with ui.perfetto.dev or chrome://tracing\n"
                              "left out: 2 traces of other worlds in that folder\n");
}

TEST_CASE("tutti-flight --merge-trace: the size of a world that is not known is not told") {
  const traces t;
  t.write("trace_0.json", trace(0, "w", 1, ""));
  CHECK(in_words(t.merged()).find(": 1 ranks, 2 events;") != std::string::npos);
}

TEST_CASE("tutti-flight --merge-trace: an event that lacks what it must have is an error with its file and line") {
  for (const char* key : {"\"base_ns\":\"1000000000\",", "\"pid\":0,", "\"tid\":5,", "\"ts\":7,", "\"group\":0"}) {
    CAPTURE(key);
    const traces t;
    std::string text = trace(0, "w", 7);
    const bool in_head = text.find(key) < text.find("\"ts\"");
    text.erase(text.find(key), std::string{key}.size());
    if (const auto comma = text.find(",}"); comma != std::string::npos) text.erase(comma, 1);
    t.write("trace_0.json", text);
    const std::string why = t.error();
    CAPTURE(why);
    CHECK(why.starts_with(t.home.file("trace_0.json") + ", line " + (in_head ? "2" : "3") + ", is no event"));
  }
  const traces t;
  std::string text = trace(0, "w", 7);
  t.write("trace_0.json", text.replace(text.find("1000000000"), 10, "soon"));
  CHECK(t.error().starts_with(t.home.file("trace_0.json") + ", line 2, is no event"));
}

}  // namespace
