#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <tutti/async/engine.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/grad/pass/in_flight.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/ranks.hpp"
#include "grad/reducer/drifting.hpp"

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::reducer;
using tutti::grad::reducer_options;
using tutti::grad::replan;
using world_t = ranks::communicator;

template <class Reducer>
tutti::grad::detail::started rebuilding(tutti::engine&, Reducer& r) {
  (void)co_await r.rebuild();
}
}  // namespace

TEST_CASE("replan: on drift all ranks change to one plan at once, with uneven inputs and unused parameters") {
  using tutti::grad::launch_order;
  using tutti::grad::unused_parameters;
  for (const int size : {1, 2, 3})
    for (const dtype type : {dtype::f32, dtype::f64, dtype::f16, dtype::bf16})
      for (const std::size_t after : {1u, 3u})
        for (const auto order : {launch_order::planned, launch_order::ready}) {
          const reducer_options how{.unused = type == dtype::f64 ? unused_parameters::tracked : unused_parameters::zero,
                                    .order = order,
                                    .in_flight = after == 3 ? std::size_t{2} : 0,
                                    .replan = replan::on_drift,
                                    .drift_passes = after};
          const auto all = ranks::outcomes(size, [&](world_t& world) { (void)drifting::run(world, how, type); });
          for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
        }
}

TEST_CASE("replan: by default nothing moves") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const auto ids = drifting::run(world, {});
    expect(ids.front() == ids.back(), "one plan");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("replan: under any schedule of messages and shared memory") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const tutti::sim_options schedule{.seed = seed,
                                      .memory = seed % 2 ? tutti::sim_memory::shared : tutti::sim_memory::separate};
    tutti::run_sim(3, schedule, [&](tutti::communicator<tutti::sim>& world) {
      (void)drifting::run(world, {.replan = replan::on_drift, .drift_passes = 1 + seed % 3});
    });
  }
}

TEST_CASE("replan: options differ, or make no sense") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> list{{"a", 3}};
    const auto never =
        ranks::outcome_of([&] { reducer r{world, list, {.replan = replan::on_drift, .drift_passes = 0}}; });
    expect(never.usage && never.says("drift_passes = 0"), never.text);
    const auto one = ranks::outcome_of(
        [&] { reducer r{world, list, {.replan = world.rank() == 0 ? replan::on_drift : replan::on_request}}; });
    expect(one.failed == tutti::errc::mismatch && one.says("replan"), one.text);
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("replan: a rebuild() that is dropped half-way ends the world, as its rank may have another plan") {
  std::latch under_way(1);
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> list{{"a", 3}, {"b", 40}};
    reducer r{world, list};
    if (world.rank() == 0) {
      under_way.wait();
      (void)tutti::sync_wait(world, r.rebuild());
      ranks::whole_pass(world, r);
    } else {
      auto half_way = std::make_unique<tutti::grad::detail::started>(rebuilding(world.engine(), r));
      expect(!half_way->ended(), "waits for rank 0");
      under_way.count_down();
      half_way.reset();
      ranks::whole_pass(world, r);
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.failed == tutti::errc::aborted, o.text);
}
