#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "process/trainer.hpp"
#include "support/temporary_directory.hpp"

/// The GPT trainer as a user runs it.
TEST_CASE("gpt: 2 ranks with 4 sequences each follow the loss of 1 rank with 8, and rank 0 writes") {
  const tutti_test::temporary_directory folder;
  std::ofstream text{folder.file("text")};
  for (int i = 0; i < 200; ++i) text << i * i << " is the square of " << i << ".\n";
  text.close();
  const std::vector<std::string> options{"--text",     folder.file("text"),
                                         "--steps",    "40",
                                         "--batch",    "8",
                                         "--width",    "16",
                                         "--heads",    "2",
                                         "--lr",       "0.01",
                                         "--context",  "16",
                                         "--validate", "20",
                                         "--sample",   "12"};
  const auto one = tutti_test::train("gpt", folder.path(), 1, options);
  const auto two = tutti_test::train("gpt", folder.path(), 2, options);
  CAPTURE(two.out);
  REQUIRE(one.status == 0);
  REQUIRE(two.status == 0);
  REQUIRE(one.losses.size() == 40);
  REQUIRE(two.losses.size() == 40);
  CHECK(tutti_test::largest_difference(two, one, 40) < 2e-5);
  CHECK(two.losses.back() < 0.8 * two.losses.front());
  CHECK(two.out.find("on 2 ranks\nstep     0/40  validation loss") != std::string::npos);
  CHECK(two.out.find("\nstep    40/40  validation loss") != std::string::npos);
  CHECK(two.out.find("(all equal)\n") != std::string::npos);

  const auto missing = tutti_test::train("gpt", folder.path(), 2, {"--text", folder.file("nothing")});
  CHECK(missing.status == 1);
  CHECK(missing.out.find("gpt: cannot read " + folder.file("nothing")) != std::string::npos);
}
