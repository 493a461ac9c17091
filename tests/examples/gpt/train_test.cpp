#include "gpt/train.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

struct curve {
  std::vector<double> losses;
  double validation = 0;
};

std::string some_text() {
  std::string text;
  for (int i = 0; i < 120; ++i) text += std::to_string(i * i) + " is the square of " + std::to_string(i) + ".\n";
  return text;
}

template <class T>
curve train(int ranks, const gpt::options& wanted) {
  const gpt::corpus text{some_text(), wanted.context};
  curve result;
  tutti::run_threads(ranks, [&](tutti::communicator<tutti::threads>& world) {
    gpt::trainer<T, tutti::communicator<tutti::threads>> trainer{wanted, text, world};
    curve mine;
    for (std::size_t i = 0; i < wanted.steps; ++i) mine.losses.push_back(tutti::sync_wait(world, trainer.step(i)));
    mine.validation = tutti::sync_wait(world, trainer.validate());
    if (world.rank() == 0) result = mine;
  });
  return result;
}

double largest_difference(const curve& a, const curve& b) {
  double largest = std::abs(a.validation - b.validation) / b.validation;
  for (std::size_t i = 0; i < b.losses.size(); ++i)
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / b.losses[i]);
  return largest;
}

gpt::options small() {
  gpt::options wanted;
  wanted.steps = 40;
  wanted.batch = 8;
  wanted.width = 16;
  wanted.heads = 2;
  wanted.context = 16;
  wanted.learning_rate = 0.01;
  return wanted;
}

}  // namespace

TEST_CASE("gpt: any number of ranks follows the losses of one over 40 steps, and learns") {
  const auto one = train<float>(1, small());
  REQUIRE(one.losses.size() == 40);
  CHECK(one.losses.back() < 0.8 * one.losses.front());
  for (const int ranks : {2, 3, 4}) CHECK(largest_difference(train<float>(ranks, small()), one) < 2e-5);
}

TEST_CASE("gpt: in double the same to 1e-12, with a rank that has no sequence") {
  gpt::options wanted = small();
  wanted.batch = 2;
  CHECK(largest_difference(train<double>(3, wanted), train<double>(1, wanted)) < 1e-12);
}
