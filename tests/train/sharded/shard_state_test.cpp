#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/error.hpp>
#include <tutti/train/shard_state.hpp>
#include <tutti/train/update_rule.hpp>
#include <utility>
#include <vector>

#include "support/expect.hpp"
#include "support/failure_of.hpp"

namespace {
using tutti::grad::contribution;
using tutti::train::adamw;
using tutti::train::sgd;
using tutti::train::shard_state;
using tutti_test::expect;
}  // namespace

TEST_CASE("shard_state: sums become the mean by the weights of all ranks, and a step is the rule's") {
  tutti::run_threads(
      3,
      [](tutti::communicator<tutti::threads>& world) {
        shard_state<double, sgd> s{2, {.rate = 0.5, .momentum = 0.5}};
        expect(s.bytes() == 2 * sizeof(double) && s.gradients().empty(), "memory of a pass before the first");
        std::vector<double> parameters{10, 20};
        const auto pass = [&](double weight, contribution what, double sum, double factor) {
          s.begin(world, weight, what);
          expect(s.begun() && !s.averaged() && s.gradients().size() == 2, "begun");
          for (double& g : s.gradients()) g = sum;
          tutti::sync_wait(world, s.average(world, "s"));
          expect(s.averaged(), "averaged");
          const double mean = s.gradients()[1];
          s.step(parameters, factor);
          expect(!s.begun() && !s.averaged(), "ended");
          return mean;
        };
        expect(pass(world.rank() * 2, contribution::mean, 12, 1) == 2, "12 / (0 + 2 + 4)");
        expect(s.scale() == world.rank() * 2, "scale of a mean");
        expect(parameters == std::vector<double>{9, 19}, "velocity 2");
        expect(pass(world.rank(), contribution::sum, 12, 0.25) == 4, "12 / (0 + 1 + 2)");
        expect(s.scale() == (world.rank() == 0 ? 0 : 1), "scale of a sum");
        expect(parameters == std::vector<double>{8, 18}, "velocity 2 / 2 + 4 / 4");
        expect(pass(0, contribution::mean, 0, 1) == 0, "nobody's samples");
        expect(s.total_weight() == 0 && parameters == std::vector<double>{8, 18}, "no step");
        expect(s.steps() == 2 && s.slots()[0][0] == 2, "what is remembered");
      },
      std::chrono::seconds(60));
}

TEST_CASE("shard_state: piece by piece is as at once; a weight that is none changes nothing") {
  const std::vector<float> gradients{1, -2, 3, -4, 5};
  std::vector<float> whole{1, 2, 3, 4, 5}, pieces = whole;
  shard_state<float, adamw> a{5, {}}, b{5, {}};
  a.resume(6), b.resume(6);
  for (int step = 0; step < 3; ++step) {
    a.step_by(whole, gradients);
    b.count_step();
    for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{3, 2}, {0, 1}, {1, 2}})
      b.apply(first, std::span{pieces}.subspan(first, count), std::span{gradients}.subspan(first, count));
  }
  CHECK(pieces == whole);
  CHECK(a.steps() == 9);
  CHECK(b.steps() == 9);
  tutti::run_threads(1, [&](tutti::communicator<tutti::threads>& world) {
    b.begin(world, 2, contribution::mean);
    b.gradients()[0] = 7;
    for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
      CHECK_THROWS_AS(b.begin(world, bad, contribution::mean), tutti::usage_error);
    CHECK(b.gradients()[0] == 7);
    tutti::sync_wait(world, b.average(world, "b"));
    CHECK(b.total_weight() == 2);
  });
}

TEST_CASE("shard_state: all ranks leave a pass without its step, or none; otherwise all are told, until they resume") {
  tutti::run_threads(
      3,
      [](tutti::communicator<tutti::threads>& world) {
        shard_state<double, sgd> s{1, {.rate = 1}};
        std::vector<double> parameters{10};
        const auto pass = [&](auto steps, double weight = 1) {
          s.begin(world, weight, contribution::sum);
          s.gradients()[0] = 3;
          const auto f = tutti_test::failure_of([&] { (void)tutti::sync_wait(world, s.average(world, "shards")); });
          if (f.kind == tutti::errc::ok && steps(world.rank())) s.step(parameters, 1);
          return f;
        };
        const auto none = [](int) { return false; };
        const auto all = [](int) { return true; };
        const auto but_1 = [](int rank) { return rank != 1; };
        for (const auto& f : {pass(none), pass(all), pass(but_1, 0), pass(but_1)})
          expect(f.kind == tutti::errc::ok, f.text);
        for (int i = 0; i < 2; ++i) {
          const auto f = pass(all);
          expect(f.kind == tutti::errc::mismatch && f.peer == 1, f.text);
          expect(f.mentions("shards: rank 1 left the last pass after average() and without step()"), f.text);
          expect(!s.begun() && s.steps() == (world.rank() == 1 ? 1U : 2U), "a step of another pass");
        }
        s.resume(1);
        expect(pass([](int rank) { return rank == 1; }).kind == tutti::errc::ok, "resumed");
        expect(pass(all).mentions("shards: 2 ranks left"), "two of them");
      },
      std::chrono::seconds(60));
}
