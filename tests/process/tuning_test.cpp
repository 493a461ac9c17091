#include <doctest/doctest.h>
#include <unistd.h>
#include <tutti/core/status.hpp>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

/// Tables of algorithms, from tutti-bench to the operations of a world.
namespace {

using namespace tutti_test;

reports joined(const std::vector<rank_words>& ranks) {
  const std::string name = unique_name();
  const int n = static_cast<int>(ranks.size());
  return run_ranks("join", n, [&](int r) {
    rank_words w = ranks[static_cast<std::size_t>(r)];
    w.arguments.insert(w.arguments.end(), {at("unix:@" + name, r, n), "transport=tcp"});
    return w;
  });
}

}  // namespace

TEST_CASE("a table of algorithms is what a world goes by") {
  temporary_directory folder;
  const std::string table = folder.file("table"), other = folder.file("other");
  std::ofstream{table} << "tutti tuning 1\nall_reduce messages * * pairwise\n";
  std::ofstream{other} << "tutti tuning 1\nall_reduce messages * * ring\n";
  const rank_words by_variable{{}, {"TUTTI_TUNING=" + table}}, by_option{{"tuning=" + table}, {}},
      goes_first{{"tuning=" + table}, {"TUTTI_TUNING=" + other}};
  for (const auto& ranks : {std::vector{by_variable, by_variable}, std::vector{by_option, by_variable},
                            std::vector{goes_first, goes_first}}) {
    const auto all = joined(ranks);
    check_joined(all, 2);
    CHECK(occurrences(all_text(all), "all_reduces 252 ints by pairwise") == 2);
  }
  CHECK(occurrences(all_text(joined({rank_words{}, rank_words{}})), "by pairwise") == 0);
  for (const auto& ranks : {std::vector{by_variable, rank_words{}}, std::vector{by_variable, goes_first, goes_first},
                            std::vector{by_variable, rank_words{{}, {"TUTTI_TUNING=" + other}}}}) {
    const auto all = joined(ranks);
    if (ranks.size() == 3)
      check_joined(all, 3);
    else
      check_refused(all, static_cast<int>(tutti::errc::rendezvous), {"init_options::tuning alike"});
  }
}

TEST_CASE("tutti-bench --tune writes a table that init() takes" * doctest::test_suite("bench")) {
  const std::string bench = TUTTI_BENCH_DIR "/tutti-bench";
  if (::access(bench.c_str(), X_OK) != 0) {
    MESSAGE("skipped: there is no " << bench);
    return;
  }
  temporary_directory folder;
  const std::string table = folder.file("table");
  processes started;
  started.start({tutti_run(),
                 {"-n", "2", "--output", "plain", "--", bench, "--tune", table, "--tune_seconds", "1"},
                 {"TUTTI_TRANSPORT=tcp"}});
  const auto tuned = started.wait(std::chrono::seconds{100}).front();
  REQUIRE_MESSAGE(tuned.status == 0, tuned.out);
  std::ifstream in{table};
  std::string text{std::istreambuf_iterator<char>{in}, {}};
  CAPTURE(text);
  CHECK(text.starts_with("tutti tuning 1\n"));
  CHECK(contains(text, "\nall_reduce messages 2 "));
  const rank_words by_option{{"tuning=" + table}, {}};
  check_joined(joined({by_option, by_option}), 2);
}
