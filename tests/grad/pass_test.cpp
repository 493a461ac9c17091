#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/ranks.hpp"

// What a pass may leave out, put off or give up.

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::contribution;
using tutti::grad::reducer;
using tutti::grad::reducer_options;
using tutti::grad::step;
using tutti::grad::unused_parameters;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

shapes of_type(dtype type) { return {{"a", 3, type}, {"b", 40, type}, {"c", 1, type}}; }

template <class Reducer, class Pass>
step finish(world_t& world, Reducer&, Pass& pass) {
  return tutti::sync_wait(world, pass.finish());
}

/// All elements of a parameter, in double.
template <class Reducer>
void set(Reducer& r, std::size_t i, double value) {
  tutti::grad::visit_gradient(r.layout().buckets[0].type, [&]<class T>() {
    for (T& x : r.template gradient<T>(i)) x = T(static_cast<float>(value));
  });
}
template <class Reducer>
double get(Reducer& r, std::size_t i) {
  double value = 0;
  tutti::grad::visit_gradient(r.layout().buckets[0].type, [&]<class T>() {
    const auto g = r.template gradient<T>(i);
    value = static_cast<double>(g[0]);
    for (const T x : g)
      if (static_cast<double>(x) != value) value = std::numeric_limits<double>::quiet_NaN();
  });
  return value;
}

constexpr std::array types{dtype::f32, dtype::f64, dtype::bf16, dtype::f16};

}  // namespace

TEST_CASE("pass: what no rank uses keeps its gradient, what one rank uses becomes the mean") {
  for (const dtype type : types)
    for (const std::size_t cap : {std::size_t{1}, std::size_t{1} << 20}) {
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        const auto list = of_type(type);
        reducer r{world, list, {.limits = {cap, cap}, .unused = unused_parameters::tracked}};
        for (int round = 0; round < 3; ++round) {
          for (std::size_t i = 0; i < 3; ++i) set(r, i, 40 + static_cast<double>(i));  // old values
          auto pass = r.begin(2);
          pass.unused(0);
          if (world.rank() == 1) {
            set(r, 1, 6);
            pass.ready(1);
          }
          pass.rest_unused();
          expect(finish(world, r, pass) == step::apply, "step");
          expect(!r.used(0) && r.used(1) && !r.used(2), "used");
          expect(get(r, 0) == 40 && get(r, 2) == 42, "untouched");
          expect(get(r, 1) == 2, "a mean over all ranks");
        }
        auto pass = r.begin();
        for (std::size_t i = 0; i < 3; ++i) set(r, i, 8), pass.ready(i);
        expect(finish(world, r, pass) == step::apply, "step");
        for (std::size_t i = 0; i < 3; ++i) expect(r.used(i) && get(r, i) == 8, "as if nothing had been left out");
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

TEST_CASE("pass: where unused parameters are not tracked they count as zeros") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const auto list = of_type(dtype::f32);
    reducer r{world, list};
    for (std::size_t i = 0; i < 3; ++i) set(r, i, 5);
    auto pass = r.begin();
    if (world.rank() == 0) pass.ready(1);
    pass.rest_unused();
    (void)finish(world, r, pass);
    expect(get(r, 0) == 0 && get(r, 1) == 2.5 && get(r, 2) == 0 && r.used(0), "zeros");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: one rank skips, all skip, and all go on") {
  for (const dtype type : types)
    for (const step why : {step::skip_overflow, step::skip_failure}) {
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        const auto list = of_type(type);
        reducer r{world, list, {.limits = {1, 1}}};
        for (int round = 0; round < 6; ++round) {
          auto pass = r.begin(4);
          const bool odd = round % 4 == world.rank();
          try {
            for (std::size_t i = 3; i-- > 0;) {
              if (odd && i == static_cast<std::size_t>(round % 3)) throw std::bad_alloc();
              set(r, i, 1);
              pass.ready(i);
            }
          } catch (const std::bad_alloc&) {
            pass.skip(why);
          }
          const bool somebody = round % 4 < 3;
          expect(finish(world, r, pass) == (somebody ? why : step::apply), "step");
          expect(r.total_weight() == 12, "the weight");
        }
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

TEST_CASE("pass: where ranks skip for several reasons, a failure counts") {
  const auto all = ranks::outcomes(4, [&](world_t& world) {
    for (const dtype type : types) {
      const auto list = of_type(type);
      reducer r{world, list};
      auto pass = r.begin();
      if (world.rank() != 0) pass.skip(world.rank() == 2 ? step::skip_failure : step::skip_overflow);
      if (world.rank() == 0) pass.rest_unused();
      expect(finish(world, r, pass) == step::skip_failure, "step");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: ranks that run out of samples go on with weight 0 until all have, and stop in the same step") {
  const auto all = ranks::outcomes(4, [&](world_t& world) {
    const auto list = of_type(dtype::f32);
    reducer r{world, list};
    const int mine = 2 + 3 * world.rank();  // batches, of 2 samples each
    int steps = 0;
    for (;; ++steps) {
      const bool more = steps < mine;
      auto pass = r.begin(more ? 2 : 0);
      for (std::size_t i = 0; more && i < 3; ++i) set(r, i, world.rank() + 1), pass.ready(i);
      pass.rest_unused();
      (void)finish(world, r, pass);
      if (r.total_weight() == 0) break;
      double total = 0;
      int live = 0;
      for (int k = 0; k < 4; ++k)
        if (steps < 2 + 3 * k) total += k + 1, ++live;
      expect(static_cast<float>(get(r, 1)) == static_cast<float>(total / live), "the mean over those with samples");
    }
    expect(steps == 11, "all end with the longest");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: a backward pass goes on after a skip in its middle, and the next step is whole") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> shapes(3, {"w", 4});
    reducer r{world, shapes, {.limits = {1, 1}}};
    const std::vector<float> elsewhere(4, 1);
    for (const bool skips : {true, false}) {
      auto pass = r.begin();
      pass.ready(2);
      if (skips && world.rank() == 1) pass.skip(step::skip_overflow);
      pass.ready(1, elsewhere);
      pass.ready(0);
      const step did = tutti::sync_wait(world, pass.finish());
      expect(did == (skips ? step::skip_overflow : step::apply), "step");
    }
    expect(r.gradient<float>(1)[3] == 1, "the mean");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: a skip that comes when the flags have left is refused, not lost") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    reducer r{world, of_type(dtype::f32), {.limits = {1, 1}}};
    auto pass = r.begin();
    pass.rest_unused();
    const auto late = ranks::outcome_of([&] { pass.skip(step::skip_overflow); });
    expect(late.usage && late.says("before the last mark"), "accepted: " + late.text);
    expect(finish(world, r, pass) == step::apply, "step");
    auto part = r.begin(tutti::grad::accumulate);
    part.rest_unused();
    if (world.rank() == 0) part.skip(step::skip_overflow);  // nothing has left
    (void)finish(world, r, part);
    auto next = r.begin();
    next.rest_unused();
    expect(finish(world, r, next) == step::skip_overflow, "step");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: where there are no parameters a skip reaches all ranks, too") {
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    reducer r{world, shapes{}};
    for (int who = -1; who < 3; ++who) {
      auto pass = r.begin();
      pass.rest_unused();
      if (world.rank() == who) pass.skip(step::skip_overflow);
      expect(finish(world, r, pass) == (who < 0 ? step::apply : step::skip_overflow), "step");
      auto part = r.begin(tutti::grad::accumulate);
      if (world.rank() == who) part.skip(step::skip_failure);
      (void)finish(world, r, part);
      auto next = r.begin();
      expect(finish(world, r, next) == (who < 0 ? step::apply : step::skip_failure), "the step after");
      expect(r.total_weight() == 6, "weight");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: micro-batches are reduced once, with the sum of their weights") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const auto list = of_type(dtype::f32);
    reducer r{world, list, {.unused = unused_parameters::tracked}};
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < 3; ++i) set(r, i, 0);
      const int micro = 1 + world.rank() * 2;  // 1 and 3 of them before the last
      for (int k = 0; k < micro; ++k) {
        auto pass = r.begin(tutti::grad::accumulate, 4);
        for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {  // the third gets nothing here
          set(r, i, get(r, i) + 8);
          pass.ready(i);
        }
        pass.unused(2);
        expect(finish(world, r, pass) == step::apply, "step");
        expect(get(r, 0) == 8 * (k + 1), "nothing was reduced");
      }
      auto pass = r.begin(4, contribution::sum);
      set(r, 1, get(r, 1) + 8);
      pass.ready(1);
      pass.unused(0);  // this time; before it was used
      pass.unused(2);
      expect(finish(world, r, pass) == step::apply, "step");
      expect(r.total_weight() == 24, "2 and 4 batches of 4 samples");
      expect(get(r, 1) == 48.0 / 24, "the sum over all samples by their number");
      expect(static_cast<float>(get(r, 0)) == static_cast<float>(32.0 / 24), "what was there is kept");
      expect(r.used(0) && r.used(1) && !r.used(2), "used");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: what micro-batches have added without a mark is not lost when the last pass leaves it out") {
  for (const unused_parameters how : {unused_parameters::zero, unused_parameters::tracked}) {
    const auto all = ranks::outcomes(2, [&](world_t& world) {
      const auto list = of_type(dtype::f32);
      reducer r{world, list, {.unused = how}};
      for (std::size_t i = 0; i < 3; ++i) set(r, i, 1);
      for (int k = 0; k < 2; ++k) {
        auto part = r.begin(tutti::grad::accumulate, k == 0 ? 2 : 0);
        if (k == 0) set(r, 0, 6), part.unused(2);
        (void)finish(world, r, part);
      }
      auto pass = r.begin(0, contribution::sum);
      pass.rest_unused();
      expect(finish(world, r, pass) == step::apply && r.total_weight() == 4, "weight");
      expect(get(r, 0) == 3 && get(r, 1) == 0.5, "the sum over all samples by their number");
      expect(get(r, 2) == (how == unused_parameters::zero ? 0 : 1) && r.used(1), "said to be unused");
      auto next = r.begin();
      next.rest_unused();
      (void)finish(world, r, next);
      expect(get(r, 0) == (how == unused_parameters::zero ? 0 : 3), "only what was carried over is kept");
    });
    for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  }
}

TEST_CASE("pass: one that accumulates may be dropped, and a skip in it is not forgotten") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const auto list = of_type(dtype::f32);
    reducer r{world, list};
    {
      auto dropped = r.begin(tutti::grad::accumulate, 7);
      dropped.ready(1);
    }
    if (world.rank() == 0) {
      auto broken = r.begin(tutti::grad::accumulate, 7);
      broken.skip(step::skip_failure);
    }
    auto spoilt = r.begin(4);
    spoilt.rest_unused();
    expect(finish(world, r, spoilt) == step::skip_failure, "what a broken pass has added is not used");
    expect(r.total_weight() == 8, "without what was dropped");
    auto first = r.begin(tutti::grad::accumulate, 4);
    if (world.rank() == 1) first.skip(step::skip_overflow);
    (void)finish(world, r, first);
    auto pass = r.begin(4);
    pass.rest_unused();
    expect(finish(world, r, pass) == step::skip_overflow, "step");
    expect(r.total_weight() == 16, "without what was dropped");
    auto next = r.begin(4);
    next.rest_unused();
    expect(finish(world, r, next) == step::apply, "the next pass starts anew");
    expect(r.total_weight() == 8, "weight");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: what a dropped pass has added is used by no rank, unless its rank discards it") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const auto list = of_type(dtype::f32);
    reducer r{world, list};
    for (const bool discards : {false, true}) {
      if (world.rank() == 1) {
        auto whole = r.begin(tutti::grad::accumulate, 5);
        set(r, 0, 100);
        (void)finish(world, r, whole);
        auto dropped = r.begin(tutti::grad::accumulate, 7);
        set(r, 0, 200);
        if (discards) {
          const auto during = ranks::outcome_of([&] { r.discard(); });
          expect(during.usage && during.says("discard() during a pass"), during.text);
        }
      }
      if (discards) {
        r.discard();
        expect(get(r, 0) == 0, "zeros");
      }
      auto pass = r.begin(4);
      set(r, 0, get(r, 0) + 8);
      for (std::size_t i = 0; i < 3; ++i) pass.ready(i);
      expect(finish(world, r, pass) == (discards ? step::apply : step::skip_failure), "step");
      expect(!discards || (get(r, 0) == 8 && r.total_weight() == 8), "as if nothing had been added");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: wrong calls are refused by name and change nothing") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const auto list = of_type(dtype::f32);
    reducer r{world, list};
    auto pass = r.begin();
    pass.unused(1);
    const auto twice = ranks::outcome_of([&] { pass.unused(1); });
    expect(twice.usage && twice.says("unused: parameter 1 (b) was marked twice"), twice.text);
    const auto beyond = ranks::outcome_of([&] { pass.unused(3); });
    expect(beyond.usage && beyond.says("unused: there is no parameter 3"), beyond.text);
    const auto why = ranks::outcome_of([&] { pass.skip(step::apply); });
    expect(why.usage, why.text);
    const auto during = ranks::outcome_of([&] { (void)r.begin(tutti::grad::accumulate); });
    expect(during.usage, during.text);
    const auto early = ranks::outcome_of([&] { (void)tutti::sync_wait(world, r.rebuild()); });
    expect(early.usage && early.says("rebuild() during a pass"), early.text);
    pass.rest_unused();
    expect(finish(world, r, pass) == step::apply, "step");
    for (const double f : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
      const auto o = ranks::outcome_of([&] { reducer bad{world, list, {.predivide = f}}; });
      expect(o.usage && o.says("predivide"), o.text);
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: a factor that divides before the sum and not after it keeps sums small and means whole") {
  const auto all = ranks::outcomes(4, [&](world_t& world) {
    for (const dtype type : types) {
      const auto list = of_type(type);
      reducer r{world, list, {.predivide = 4}};
      auto pass = r.begin(1);
      for (std::size_t i = 0; i < 3; ++i) set(r, i, 4 * (world.rank() + 1)), pass.ready(i);
      (void)finish(world, r, pass);
      expect(get(r, 0) == 10, "the mean");
    }
    // What would overflow without it.
    const auto list = of_type(dtype::f32);
    reducer r{world, list, {.predivide = 8}};
    auto pass = r.begin(1);
    for (std::size_t i = 0; i < 3; ++i) set(r, i, 0x1p127), pass.ready(i);
    (void)finish(world, r, pass);
    expect(get(r, 0) == 0x1p127, "the mean of what is large");
    // In a group, too: the divisor is that of the group.
    auto group = world.split(world.rank() % 2);
    reducer half{group, list, {.predivide = 2}};
    auto part = half.begin(1);
    for (std::size_t i = 0; i < 3; ++i) set(half, i, 4 * (world.rank() + 1)), part.ready(i);
    (void)finish(group, half, part);
    expect(get(half, 0) == (world.rank() % 2 == 0 ? 8 : 12), "the mean of the group");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("pass: under every order of messages a rank that skips is heard") {
  tutti::for_seeds(1, 40, [](std::uint64_t seed) {
    tutti::run_sim(3, seed, [](tutti::communicator<tutti::sim>& world) {
      const shapes list{{"a", 3, dtype::f16}, {"b", 40, dtype::f32}};
      reducer r{world, list, {.limits = {1, 1}, .unused = unused_parameters::tracked}};
      for (int round = 0; round < 3; ++round) {
        auto pass = r.begin();
        if (round == world.rank())
          pass.skip(step::skip_failure);
        else
          pass.rest_unused();
        if (tutti::sync_wait(world, pass.finish()) != step::skip_failure) throw std::logic_error("not heard");
      }
    });
  });
}
