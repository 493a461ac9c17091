#include <doctest/doctest.h>
#include <tutti/core/status.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "process/worlds.hpp"
#include "support/grid.hpp"
#include "support/temporary_directory.hpp"

// The suite that every backend passes, over real processes.
TEST_CASE("collectives are right between processes" * doctest::test_suite("grid")) {
  using namespace tutti_test;
  std::string transport = "transport=automatic", encryption = "TUTTI_ENCRYPTION=none";
  temporary_directory folder;
  std::ofstream{folder.file("secret")} << std::string(64, '1');
  std::filesystem::permissions(folder.file("secret"), std::filesystem::perms{0600});
  int machines = 1;
  std::vector<int> sizes{1, 2, 3, 4, 5, 6, 7, 8, 9};
  SUBCASE("shared memory") { transport = "transport=shm"; }
  SUBCASE("TCP") { transport = "transport=tcp"; }
  SUBCASE("TCP, encrypted") {
    transport = "transport=tcp";
    sizes = {2, 3};
    encryption = "TUTTI_ENCRYPTION=tls";
  }
  SUBCASE("shared memory inside of two machines, TCP between them") {
    machines = 2;
    sizes = {2, 3, 4, 5, 6, 7, 8, 9};
  }
  SUBCASE("machines of one rank each") {
    machines = 8;
    sizes = {3};
  }
  for (const int n : world_sizes(sizes)) {
    const std::string name = unique_name();
    CAPTURE(n);
    const auto all = run_ranks(
        "suite", n,
        [&](int r) {
          std::vector<std::string> words{at("unix:@" + name, r, n), transport, "timeout=120000"};
          if (machines > 1) words.push_back("domain=machine" + std::to_string(r % machines));
          if (machines == 2 && n != 3) words.push_back("stride=2");
          if (n % 2 == 0 || machines == 2) words.push_back("mixed=1");  // buffers of the world's memory, too
          // Two connections, or four, where it takes no more time.
          const int connections = n == 3 ? 4 : n == 4 || n == 9 ? 2 : 1;
          return rank_words{words,
                            {"TUTTI_CONNECTIONS=" + std::to_string(connections), encryption,
                             "TUTTI_SECRET_FILE=" + folder.file("secret")}};
        },
        std::chrono::seconds{120});
    const std::string text = all_text(all);
    CAPTURE(text);
    CHECK(occurrences(text, "all well on rank ") == n);
    CHECK(occurrences(text, "all of its connections are encrypted") == (encryption == "TUTTI_ENCRYPTION=tls" ? n : 0));
    check_nothing_left(name);
  }
}

TEST_CASE("processes are told that another's reduction threw") {
  using namespace tutti_test;
  for (const std::string words : {"transport=shm", "transport=tcp", "domain="}) {
    const std::string name = unique_name();
    const auto all = run_ranks("stream", 4, [&](int r) {
      const std::string place = words == "domain=" ? words + std::to_string(r / 2) : words;
      return rank_words{{at("unix:@" + name, r, 4), place, "throws=1"}, {}};
    });
    for (std::size_t r = 0; r < all.size(); ++r) {
      CAPTURE(words);
      CAPTURE(r);
      const std::string who = r == 1 ? "this rank" : "rank 1";
      CHECK_MESSAGE(contains(all[r].out, "failed: a reduction threw an exception on " + who), all[r].out);
    }
    check_nothing_left(name);
  }
}

TEST_CASE(
    "processes wait for others long, in their groups and through each other, and nobody asks who is none of theirs") {
  using namespace tutti_test;
  for (const std::string words : {"transport=tcp", "domain="}) {
    const std::string name = unique_name();
    const auto all = run_ranks("stream", 4, [&](int r) {
      const std::string place = words == "domain=" ? words + std::to_string(r) : words;
      return rank_words{{at("unix:@" + name, r, 4), place, "groups=1"}, {}};
    });
    const std::string text = all_text(all);
    CAPTURE(text);
    for (const auto& rank : all) CHECK(contains(rank.out, "all well"));
    // Along the ring each asks the one before it, to which it has a connection.
    CHECK(occurrences(text, " and 0 descriptors more") == 4);
    check_nothing_left(name);
  }
}

TEST_CASE("processes that call different things are told what the others called") {
  using namespace tutti_test;
  for (const bool mapped : {true, false}) {
    const std::string name = unique_name();
    const int n = mapped ? 2 : 3;
    const auto all = run_ranks("stream", n, [&](int r) {
      return rank_words{{at("unix:@" + name, r, n), mapped ? "transport=shm" : "transport=tcp", "odd=1"}, {}};
    });
    const std::string text = all_text(all);
    CAPTURE(text);
    for (const auto& rank : all)
      CHECK(contains(rank.out, "kind " + std::to_string(static_cast<int>(tutti::errc::mismatch))));
    CHECK(contains(all[0].out, "all_reduce #2 (stream.cpp:"));
    CHECK(contains(all[1].out, ", 1024 x float32, root 0) "));
    if (mapped) {
      CHECK(contains(all[0].out, " does not match what rank 1 called: broadcast #2 (1024 x float32, root 0)"));
      CHECK(contains(all[1].out, " called: all_reduce #2 (4096 x float32, sum)"));
    } else {  // also who exchanged no message with the odd one is told between whom
      CHECK(occurrences(text, " called broadcast #2 (float32, root 0)") == 3);
      CHECK(occurrences(text, " called all_reduce #2 (float32, sum)") == 3);
      CHECK(!contains(text, "another rank"));
    }
    check_nothing_left(name);
  }
}

TEST_CASE("processes log a difference of their last calls, without close(), on standard error") {
  using namespace tutti_test;
  const std::string name = unique_name();
  const auto all = run_ranks(
      "stream", 2, [&](int r) { return rank_words{{at("unix:@" + name, r, 2), "transport=shm", "last=1"}, {}}; });
  for (const std::size_t r : {0U, 1U}) {
    CAPTURE(all[r].out);
    CHECK(all[r].status == 0);
    const std::string me = std::to_string(r), other = std::to_string(1 - r);
    CHECK(contains(all[r].out, "tutti: error: rank " + me + " has ended a communicator without close(): rank " + other +
                                   " called broadcast #2 (1 x float32, root " + other +
                                   ") where this rank called broadcast #2 (1 x float32, root " + me + ");"));
  }
  check_nothing_left(name);
}
