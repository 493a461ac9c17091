#include <doctest/doctest.h>

#include <string>

#include "process/worlds.hpp"

TEST_CASE("a child that a rank forks ends its copies of everything, and nobody hears of it") {
  using namespace tutti_test;
  for (const std::string words : {"transport=shm", "transport=tcp", "domain="}) {
    const std::string name = unique_name();
    const auto all = run_ranks("forks", 4, [&](int r) {
      const std::string place = words == "domain=" ? words + std::to_string(r / 2) : words;
      return rank_words{{at("unix:@" + name, r, 4), place}, {}};
    });
    const std::string text = all_text(all);
    CAPTURE(text);
    CAPTURE(words);
    CHECK(occurrences(text, "all well on rank ") == 4);
    check_nothing_left(name);
  }
}
