#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <tutti/train/tensor_file.hpp>
#include <vector>

#include "process/trainer.hpp"
#include "support/temporary_directory.hpp"

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

TEST_CASE("the example 06 goes on from its checkpoint on another number of ranks, and leaves a file for torch") {
  const tutti_test::temporary_directory folder;
  const auto learn = [&](int ranks, const std::string& where) {
    const auto report = tutti_test::run_example("06_shards", ranks, {where});
    CAPTURE(report.out);
    CHECK(report.status == 0);
    return report.out.substr(0, report.out.find(" on "));
  };
  const std::string twice = folder.file("twice"), once = folder.file("once");
  std::filesystem::create_directory(twice);
  std::filesystem::create_directory(once);
  CHECK(learn(3, twice).find("after step 200") != std::string::npos);
  const std::string resumed = learn(2, twice);
  CHECK(resumed.find("after step 400") != std::string::npos);
  (void)learn(1, once);
  CHECK(learn(1, once) == resumed);  // the same training, whoever took part

  std::vector<double> weight(2), mean(2);
  std::int64_t batches = 0;
  tutti::train::read_tensors(twice + "/model.safetensors",
                             std::vector{tutti::train::tensor("linear.weight", std::span{weight}, {1, 2}),
                                         tutti::train::tensor("norm.running_mean", std::span{mean}),
                                         tutti::train::tensor("norm.num_batches_tracked", batches)});
  CHECK(batches == 400);
  CHECK(mean[0] == doctest::Approx(100).epsilon(0.02));
}

TEST_CASE("the example 08 needs no launcher") {
  tutti_test::processes all;
  all.start({TUTTI_EXAMPLE_DIR "/08_spawn", {"3"}, {}});
  CHECK(all.wait()[0].out == "sum over 3 processes: 1.5\nall ranks have ended\n");
}

TEST_CASE("the example 09 names rank, bucket and parameter of a NaN, and the call of an infinite sum") {
  CHECK(says("09_check_numbers", 3).find("y = 3.0000 x -2.0000, and all numbers were finite") != std::string::npos);
  const auto bad = tutti_test::run_example("09_check_numbers", 3, {"gradient", "2", "7"});
  CAPTURE(bad.out);
  CHECK(bad.status != 0);
  CHECK(bad.out.find("rank 2, bucket 0: gradient of offset[0] is ") != std::string::npos);
  const auto sum = tutti_test::run_example("09_check_numbers", 2, {"sum"});
  CAPTURE(sum.out);
  CHECK(sum.status != 0);
  CHECK(sum.out.find("all_reduce #1 (09_check_numbers.cpp:") != std::string::npos);
  CHECK(sum.out.find("finite_results (after): element 1 is inf") != std::string::npos);
}

TEST_CASE("the example 07 averages every eighth step") {
  const std::string all = says("07_local_sgd", 3);
  CHECK(all.find("y = 3.0000 x -2.0000 after 400 steps and 50 averages on 3 ranks") != std::string::npos);
}

}  // namespace
