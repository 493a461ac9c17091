#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <numeric>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/grad/reducer.hpp>
#include <utility>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::reducer;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

/// Counts what it is told to forget.
struct forgetful_hook {
  int* forgotten;
  void reset() const { ++*forgotten; }
  template <class Comm, class T>
  auto operator()(Comm& world, tutti::grad::bucket_view<T> b) const {
    return world.all_reduce(b.elements);
  }
};

template <class Reducer>
void pass_in(world_t& world, Reducer& r, const std::vector<std::size_t>& order) {
  auto pass = r.begin();
  for (const std::size_t i : order) {
    for (float& x : r.template gradient<float>(i)) x = static_cast<float>(i + 1);
    pass.ready(i);
  }
  expect(tutti::sync_wait(world, pass.finish()) == tutti::grad::step::apply, "step");
}

}  // namespace

TEST_CASE("rebuild: buckets follow the order in which gradients arrived at rank 0; gradients keep their values") {
  const auto all = ranks::outcomes(3, [](world_t& world) {
    const shapes list{{"a", 3, dtype::f32}, {"b", 40, dtype::f32}, {"c", 1, dtype::f32}, {"d", 0, dtype::f32}};
    int forgotten = 0;
    reducer r{world, list, {.limits = {1, 1}}, forgetful_hook{&forgotten}};
    expect(!tutti::sync_wait(world, r.rebuild()), "nothing has arrived yet");
    expect(r.ready_order().empty(), "ready_order");
    const std::vector<std::size_t> first{0, 2, 3, 1};
    std::vector<std::size_t> mine{3, 2, 1, 0};
    if (world.rank() == 0) mine = first;
    pass_in(world, r, mine);
    const auto before = r.layout();
    expect(tutti::sync_wait(world, r.rebuild()), "the order differs");
    expect(forgotten == 1, "the hook is told");
    expect(!(r.layout() == before), "another plan");
    for (std::size_t b = 0; b < 4; ++b)
      expect(r.layout().buckets[b].slots[0].parameter == static_cast<int>(first[b]), "in the order of rank 0");
    for (std::size_t i = 0; i < 4; ++i)
      for (const float x : r.gradient<float>(i)) expect(x == static_cast<float>(i + 1), "values are kept");
    expect(!tutti::sync_wait(world, r.rebuild()), "once is enough");
    pass_in(world, r, first);
    expect(!tutti::sync_wait(world, r.rebuild()), "no drift, no change");
    for (std::size_t i = 0; i < 4; ++i)
      for (const float x : r.gradient<float>(i)) expect(x == static_cast<float>(i + 1), "means in the new places");

    // A saved order gives the same plan from the start.
    const std::vector<int> saved(r.ready_order().begin(), r.ready_order().end());
    reducer again{world, list, {.limits = {1, 1}, .ready_order = saved}};
    expect(again.layout() == r.layout(), "the plan of a saved order");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("rebuild: what a rank leaves out, when it has run out or skips, tells nothing of the order") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"a", 3}, {"b", 4}, {"c", 5}, {"never", 2}, {"tied", 6}};
    reducer r{world, list, {.limits = {1, 1}, .delayed = {4}}};
    for (int batches = 2 + world.rank(); r.ready_order().empty() || r.total_weight() > 0; --batches) {
      auto pass = r.begin(batches > 0 ? 1 : 0);
      for (const std::size_t i : {1u, 2u, 0u})
        if (batches > 0) pass.ready(i);
      pass.rest_unused();
      (void)tutti::sync_wait(world, pass.finish());
    }
    auto skipped = r.begin();
    if (world.rank() == 0) skipped.ready(0);
    skipped.skip(tutti::grad::step::skip_failure);
    (void)tutti::sync_wait(world, skipped.finish());
    const std::vector<int> order(r.ready_order().begin(), r.ready_order().end()), seen{1, 2, 0, 3, 4};
    expect(order == seen, "what was not ready comes last");
    expect(tutti::sync_wait(world, r.rebuild()), "the order differs from that of registration");
    expect(r.layout().order() == seen, "the plan's order");
    expect(!tutti::sync_wait(world, r.rebuild()), "once is enough");
    reducer again{world, list, {.limits = {1, 1}, .ready_order = order, .delayed = {4}}};
    expect(again.layout() == r.layout(), "the plan of a saved order");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("rebuild: an order of another model is refused") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"a", 3, dtype::f32}, {"b", 4, dtype::f32}};
    for (const std::vector<int>& order : {std::vector<int>{0}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}}) {
      const auto o = ranks::outcome_of([&] { reducer r{world, list, {.ready_order = order}}; });
      expect(o.usage && o.says("names each of the 2 parameters once"), o.text);
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("rebuild: no pass begins until it has ended, also while it is suspended") {
  std::latch tried(1);
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"a", 3, dtype::f32}, {"b", 4, dtype::f32}};
    reducer r{world, list, {.limits = {1, 1}}};
    pass_in(world, r, {0, 1});
    if (world.rank() == 0) {
      tried.wait();
      expect(tutti::sync_wait(world, r.rebuild()), "the order differs");
    } else {
      const auto meanwhile = [&]() -> tutti::task<> {
        const auto o = ranks::outcome_of([&] { auto pass = r.begin(); });
        const auto again = ranks::outcome_of([&] { tutti::sync_wait(world, r.rebuild()); });
        tried.count_down();
        expect(o.usage && o.says("begin() during rebuild()"), o.text);
        expect(again.usage && again.says("rebuild() during rebuild()"), again.text);
        co_return;
      };
      tutti::sync_wait(world, tutti::when_all(r.rebuild(), meanwhile()));
    }
    pass_in(world, r, {0, 1});
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

namespace {
/// One rank does one thing and the others the other; then all go on.
template <class World>
void disagree(World& world, const shapes& list, const tutti::grad::reducer_options& how, bool rebuilds) {
  reducer r{world, list, how};
  const auto pass = [&] {
    auto p = r.begin();
    for (std::size_t i = 0; i < r.size(); ++i) p.ready(i);
    (void)tutti::sync_wait(world, p.finish());
  };
  pass();
  if (rebuilds) (void)tutti::sync_wait(world, r.rebuild());
  pass();
  pass();
}
}  // namespace

TEST_CASE("rebuild: where one rank rebuilds and another begins a pass, all are told of both at once") {
  using tutti::grad::launch_order;
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16})
    for (const auto order : {launch_order::planned, launch_order::ready})
      for (const std::size_t bound : {std::size_t{0}, std::size_t{2}})
        for (int odd = 0; odd < 6; ++odd) {
          const shapes list{{"a", 3, type}, {"b", 400, type}, {"c", 70, type}, {"d", 5, type}};
          const tutti::grad::reducer_options how{.limits = {1, 1}, .order = order, .in_flight = bound};
          const auto rebuilds = [odd](int rank) { return (odd < 3) == (rank == odd % 3); };
          const auto check = [&](const ranks::outcome& o) {
            CAPTURE(odd);
            CHECK_MESSAGE(o.failed == tutti::errc::mismatch, o.text);
            CHECK_MESSAGE((o.says("rebuild()") && o.says("begin()") && o.says("rebuild_test.cpp")), o.text);
          };
          if (type == dtype::f32)
            for (const auto& o : ranks::outcomes(3, [&](world_t& w) { disagree(w, list, how, rebuilds(w.rank())); }))
              check(o);
          std::vector<ranks::outcome> all(3);
          const tutti::sim_options schedule{
              .seed = static_cast<std::uint64_t>(odd + 1),
              .memory = odd % 2 ? tutti::sim_memory::shared : tutti::sim_memory::separate};
          tutti::run_sim(3, schedule, [&](tutti::communicator<tutti::sim>& w) {
            all[static_cast<std::size_t>(w.rank())] =
                ranks::outcome_of([&] { disagree(w, list, how, rebuilds(w.rank())); });
          });
          for (const auto& o : all) check(o);
        }
}

TEST_CASE("rebuild: a pass that meets something else does not speak of it") {
  const shapes list{{"a", 3, dtype::f32}, {"b", 400, dtype::f32}};
  for (const auto memory : {tutti::sim_memory::shared, tutti::sim_memory::separate})
    for (const bool sums : {false, true}) {
      std::vector<ranks::outcome> all(2);
      tutti::run_sim(2, {.seed = 5, .memory = memory}, [&](tutti::communicator<tutti::sim>& w) {
        all[static_cast<std::size_t>(w.rank())] = ranks::outcome_of([&] {
          reducer r{w, list};
          w.barrier().wait();
          if (w.rank() == 1) return sums ? (void)w.all_reduce(1.0f).wait() : w.barrier().wait();
          auto pass = r.begin();
          pass.rest_unused();
          (void)tutti::sync_wait(w, pass.finish());
        });
      });
      CHECK_MESSAGE((all[0].says("begin() on this rank, and another call") && !all[0].says("rebuild()")), all[0].text);
    }
}

TEST_CASE("rebuild: during a pass it is a usage_error at once, also before it is awaited, and the pass goes on") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"a", 3, dtype::f32}, {"b", 40, dtype::f32}};
    reducer r{world, list, {.limits = {1, 1}}};
    auto early = r.rebuild();
    auto pass = r.begin();
    if (world.rank() == 1) {
      const auto called = ranks::outcome_of([&] { (void)r.rebuild(); });
      const auto awaited = ranks::outcome_of([&] { (void)tutti::sync_wait(world, std::move(early)); });
      for (const auto& o : {called, awaited}) expect(o.usage && o.says("rebuild() during a pass"), o.text);
    }
    pass.ready(0);
    pass.ready(1);
    (void)tutti::sync_wait(world, pass.finish());
    if (world.rank() == 1) return (void)tutti::sync_wait(world, r.rebuild());
    auto dropped = r.begin();
    (void)r.rebuild();
  });
  CHECK_MESSAGE((all[0].usage && all[0].says("during a pass")), all[0].text);
  // Its rebuild() meets the other's begin(), or hears first how that has ended.
  CHECK_MESSAGE((all[1].failed == tutti::errc::aborted || all[1].failed == tutti::errc::mismatch), all[1].text);
}
