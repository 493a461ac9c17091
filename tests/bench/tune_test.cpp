#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <tutti-bench/tune.hpp>
#include <tutti-bench/tune_rules.hpp>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/bootstrap/tuning_file.hpp>

namespace {

using tutti::algorithm;

TEST_CASE("tune: a short run of every collective gives a table that loads, equal on all ranks") {
  std::vector<std::string> tables(2);
  std::vector<int> measured(2);
  tutti::run_sim(2, {.seed = 1, .memory = tutti::sim_memory::separate}, [&](auto& world) {
    bench::tuner tuner(world, std::chrono::milliseconds{1});
    const auto me = static_cast<std::size_t>(world.rank());
    tables[me] = tuner.run([&](const std::string&, std::size_t, algorithm, double seconds) {
      if (seconds > 0) ++measured[me];
    });
  });
  CHECK(tables[0] == tables[1]);
  CHECK(measured[0] > 20);  // the smallest size, whatever the budget
  CHECK(measured[0] == measured[1]);
  const tutti::algo::tuning table = tutti::detail::parse_tuning(tables[0], "what was measured");
  for (const char* collective : {"all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "scan", "exclusive_scan",
                                 "reduce_scatter", "all_gather", "gather", "scatter", "reduce_scatter_v",
                                 "all_gather_v", "gather_v", "scatter_v", "all_to_all", "all_to_all_v"}) {
    CAPTURE(collective);
    int rules = 0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i].collective != tutti::algo::tuning::id_of(collective)) continue;
      ++rules;
      CHECK(table[i].links == tutti::algo::connectivity::messages);
      CHECK(table[i].ranks == 2);
      CHECK(table[i].via != algorithm::hierarchical);  // no machines to be had
    }
    CHECK(rules > 0);
  }
}

TEST_CASE("tune: where ranks share memory direct is the way, and nothing is measured") {
  std::string table;
  tutti::run_threads(2, [&](auto& world) {
    bench::tuner tuner(world, std::chrono::seconds{60});
    const std::string found = tuner.run([](const std::string& what, std::size_t, algorithm, double) { FAIL(what); });
    if (world.rank() == 0) table = found;
  });
  const auto rules = tutti::detail::parse_tuning(table, "the table");
  CHECK(rules.size() > 10);
  for (std::size_t i = 0; i < rules.size(); ++i) CHECK(rules[i].via == algorithm::direct);
}

bench::series series_of(std::vector<bench::sample> samples) {
  return {"all_reduce", bench::what_counts::size, {algorithm::recursive_doubling, algorithm::ring}, std::move(samples)};
}

TEST_CASE("tune: an algorithm gives way to one that is faster by a twentieth, between the two sizes") {
  CHECK(bench::rules_of(series_of({{256, {1, 2}}, {1024, {2, 1.95}}, {4096, {4, 3}}}), "messages", 4) ==
        "all_reduce messages 4 2048 recursive_doubling\nall_reduce messages 4 * ring\n");
  CHECK(bench::rules_of(series_of({{256, {1, 2}}}), "messages", 4) == "all_reduce messages 4 * recursive_doubling\n");
  CHECK(bench::rules_of(series_of({}), "messages", 4).empty());
}

TEST_CASE("tune: for a single size an algorithm gives way only to one that is faster by a fifth") {
  CHECK(bench::rules_of(series_of({{256, {1, 2}}, {1024, {2, 1.7}}, {4096, {4, 5}}}), "messages", 4) ==
        "all_reduce messages 4 * recursive_doubling\n");
  CHECK(bench::rules_of(series_of({{256, {1, 2}}, {1024, {2, 1.5}}, {4096, {4, 5}}}), "messages", 4) ==
        "all_reduce messages 4 512 recursive_doubling\nall_reduce messages 4 2048 ring\n"
        "all_reduce messages 4 * recursive_doubling\n");
}

TEST_CASE("tune: where nobody knows the size, who is behind the least over all sizes") {
  auto s = series_of({{256, {1, 2}}, {1024, {3, 1}}});
  s.depends_on = bench::what_counts::nothing;
  CHECK(bench::rules_of(s, "memory", 2) == "all_reduce memory 2 * ring\n");
}

TEST_CASE("tune: an algorithm that falls back further and further is not measured any more") {
  constexpr std::size_t large = std::size_t{64} << 10;
  CHECK(series_of({{large / 4, {2, 1}}, {large, {3, 1}}}).hopeless(0));
  CHECK_FALSE(series_of({{large / 4, {3, 1}}, {large, {2.5, 1}}}).hopeless(0));
  CHECK_FALSE(series_of({{64, {2, 1}}, {256, {3, 1}}}).hopeless(0));
  auto s = series_of({{large / 4, {2, 1}}, {large, {3, 1}}, {4 * large, {0, 2}}, {16 * large, {0, 9}}});
  CHECK(s.hopeless(0));
  CHECK(s.samples.back().complete(s));
  CHECK(bench::rules_of(s, "messages", 4) == "all_reduce messages 4 * ring\n");
}

}  // namespace
