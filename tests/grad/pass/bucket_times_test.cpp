#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/span_log.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/watch/flight.hpp>

#include "grad/device/device_ranks.hpp"
#include "support/gpus.hpp"

namespace {

using tutti::detail::time_span;
using world_t = tutti::communicator<tutti::threads>;

/// The collectives of a rank that are of each bucket, as its flight recorder has them.
template <class World>
std::map<std::int64_t, int> marks_of(World& world) {
  std::map<std::int64_t, int> marks;
  for (const auto& e :
       tutti::watch::copy_of(world.backend().recorder().memory(), tutti::os::read_clocks(), true).entries)
    ++marks[e.what.bucket()];
  return marks;
}

/// Passes over three buckets, with a collective of the program's own between two of them.
template <class Hook>
void run_passes(world_t& world, tutti::grad::reducer_options options, Hook hook, int passes) {
  const std::vector<tutti::grad::parameter_shape> shapes(3, {"w", 1000});
  options.limits = {4000, 4000};
  tutti::grad::reducer reducer{world, shapes, options, std::move(hook)};
  REQUIRE(reducer.layout().buckets.size() == 3);
  std::vector<int> own(10, 1);
  for (int p = 0; p < passes; ++p) {
    auto pass = reducer.begin();
    for (const std::size_t i : {2U, 1U, 0U}) {
      pass.ready(i);
      if (i == 1) world.all_reduce(own, tutti::max).wait();
    }
    tutti::sync_wait(world, pass.finish());
  }
}

TEST_CASE("bucket_times: the flight recorder knows the bucket of each collective, in any order of launches") {
  tutti::run_threads(2, [](world_t& world) {
    const int before = marks_of(world)[-1];
    run_passes(world, {}, tutti::grad::sum_hook{}, 4);
    run_passes(world, {.order = tutti::grad::launch_order::ready}, tutti::grad::sum_hook{}, 3);
    auto marks = marks_of(world);
    CHECK(marks[0] == 7);
    CHECK(marks[1] == 7);
    CHECK(marks[2] == 7);
    CHECK(marks[-1] >= before + 7);
    CHECK(marks.size() == 4);
  });
}

TEST_CASE("bucket_times: so does that of a world of GPUs") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, world_t& world) {
    fake_stream compute{g.rank()};
    const std::vector<tutti::grad::parameter_shape> shapes(3, {"w", 1000});
    tutti::grad::device_reducer reducer{g, world, shapes, {.limits = {4000, 4000}}};
    for (int pass = 0; pass < 2; ++pass) device_ranks::pass_of(reducer, compute, 1.0F);
    while (!compute.done()) g.engine().poll();
    auto marks = marks_of(g);
    CHECK(marks[0] == 2);
    CHECK(marks[1] == 2);
    CHECK(marks[2] == 4);  // the flag of the step is sent in the launch of the last bucket
  });
}

TEST_CASE(
    "bucket_times: a log of spans gets passes, buckets and waits in the order of their times; without one, nothing") {
  tutti::run_threads(2, [](world_t& world) {
    CHECK(world.engine().spans().get() == nullptr);
    run_passes(world, {}, tutti::grad::sum_hook{}, 1);
    tutti::detail::span_log& log = world.engine().spans().make();
    run_passes(world, {}, tutti::grad::sum_hook{}, 2);
    run_passes(world, {}, tutti::grad::compress_hook<tutti::bfloat16>{}, 1);
    std::vector<time_span> all;
    log.exchange(all);
    std::map<time_span::kind, std::vector<time_span>> by_kind;
    for (const time_span& s : all) by_kind[s.what].push_back(s);
    const auto& passes = by_kind[time_span::kind::pass];
    const auto& buckets = by_kind[time_span::kind::bucket];
    REQUIRE(passes.size() == 3);
    REQUIRE(buckets.size() == 9);
    CHECK(passes[0].number == 1);
    CHECK(passes[1].number == 2);
    for (const time_span& p : passes) {
      CHECK(p.begun <= p.middle);
      CHECK(p.middle <= p.ended);
    }
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const time_span& b = buckets[i];
      const time_span& p = passes[i / 3];
      CHECK(b.number == i % 3);
      CHECK(b.pass == p.number);
      CHECK(b.bytes >= 4000);
      CHECK(p.begun <= b.begun);
      CHECK(b.begun <= b.middle);
      CHECK(b.middle <= b.ended);
      CHECK(b.ended <= p.ended);
    }
    for (const time_span& w : by_kind[time_span::kind::wait]) {
      CHECK(w.begun <= w.ended);
      CHECK(w.thread > 0);
    }
    log.exchange(all);
    CHECK(all.empty());
  });
}

}  // namespace
