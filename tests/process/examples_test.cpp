#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "process/trainer.hpp"

// The numbered examples, as a user runs them.

namespace {

std::string says(const std::string& example, int ranks) {
  const auto report = tutti_test::run_example(example, ranks);
  CHECK(report.status == 0);
  return report.out;
}

TEST_CASE("the examples 02, 04 and 05 say what they should, with any number of ranks") {
  CHECK(says("02_coroutines", 4).find("mean gradient 1.50, largest loss 1.50, barrier passed") != std::string::npos);
  CHECK(says("04_gradients", 3).find("y = 3.0000 x -2.0000 after 400 steps on 3 ranks") != std::string::npos);
  // More ranks than features, and no other rank at all.
  for (const int ranks : {1, 3, 12}) {
    const std::string all = says("05_blocks", ranks);
    CAPTURE(all);
    CHECK(all.find("of 10 features, number 7 splits best: gain 310.0\n") != std::string::npos);
    CHECK(std::count(all.begin(), all.end(), '\n') == ranks);
  }
}

}  // namespace
