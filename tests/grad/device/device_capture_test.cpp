#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device_reducer.hpp>

#include "grad/device/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

// A pass is no part of a graph, and captures that others have open are left whole.

namespace {

using namespace device_ranks;
using host = ranks::communicator;
using ranks::expect;
using tutti::grad::reducer_options;
using tutti::grad::step;

const shapes three{{"a", 20}, {"b", 20}, {"c", 20}};
const reducer_options small{.limits = {64, 64}};

TEST_CASE("device_reducer: made, used and ended while a capture that it is no part of is open") {
  fake::machine machine;
  run_gpus(1, [&](gpus& g, host& world) {
    fake_stream s{0}, elsewhere{0};
    machine.begin_capture(elsewhere.native());
    {
      device_reducer reducer{g, world, three, small};
      for (int n = 0; n < 2; ++n) {
        auto pass = reducer.begin(1, s);
        for (std::size_t i = 0; i < 3; ++i) pass.ready(i);
        n == 0 ? pass.finish().wait() : pass.finish().join(s);
      }
      expect(tutti::sync_wait(g, reducer.rebuild(s)), "another plan");
    }
    expect(machine.end_capture(elsewhere.native()) != nullptr, "the capture is whole");
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("device_reducer: streams that are being captured are refused, before anything changes") {
  fake::machine machine;
  run_gpus(1, [&](gpus& g, host& world) {
    fake_stream s{0}, captured{0};
    device_reducer reducer{g, world, three, small};
    std::shared_ptr<fake::graph> whole;
    const auto refused = [&](const char* call, tutti::stream_ref to, auto f) {
      machine.begin_capture(to.native());
      const auto how = ranks::outcome_of(f);
      expect(how.usage && how.says(std::string(call) + ": a pass cannot be captured"), how.text);
      expect((whole = machine.end_capture(to.native())) != nullptr, "the capture is whole");
      expect(whole->nodes.empty(), "and nothing is in it");
    };
    refused("begin", s, [&] { (void)reducer.begin(1, s); });
    refused("discard", s, [&] { reducer.discard(s); });
    refused("rebuild", s, [&] { (void)reducer.rebuild(s); });
    for (const bool joins : {false, true}) {
      auto pass = reducer.begin(1, s);
      write(s, reducer.gradient<float>(0), std::vector<float>(20, 7));
      refused("ready", captured, [&] { pass.ready(0, captured); });
      refused("ready", s, [&] { pass.ready(0); });
      refused("unused", s, [&] { pass.unused(1); });
      refused("rest_unused", s, [&] { pass.rest_unused(); });
      refused("skip", s, [&] { pass.skip(step::skip_failure); });
      pass.ready(0);
      pass.unused(1);
      pass.ready(2);
      refused("finish", s, [&] { (void)pass.finish(); });
      auto completion = pass.finish();
      refused("join", captured, [&] { (void)std::move(completion).join(captured); });
      machine.begin_capture(captured.native());
      const auto how = ranks::outcome_of([&] { (void)std::move(completion).join({}); });
      expect(how.usage && how.says("this has the default stream"), how.text);
      expect(machine.end_capture(captured.native()) != nullptr, "this one, too");
      joins ? std::move(completion).join(s) : std::move(completion).wait();
      expect(read(g, s, reducer.gradient<float>(0))[19] == 7, "the pass went on");
    }
    expect(tutti::sync_wait(g, reducer.rebuild(s)), "and so does the reducer");
    expect(pass_of(reducer, s, 2) == step::apply, "with its new plan");
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE(
    "device_reducer: a stream that is captured between its mark and its bucket ends the pass, and is left whole") {
  fake::machine machine;
  run_gpus(1, [&](gpus& g, host& world) {
    fake_stream s{0}, side{0};
    device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}}};
    {
      auto pass = reducer.begin(1, s);
      pass.ready(0, side);
      machine.begin_capture(side.native());
      const auto how = ranks::outcome_of([&] { pass.ready(1); });
      expect(how.usage && how.says("mark: a pass cannot be captured"), how.text);
    }
    expect(machine.end_capture(side.native()) != nullptr, "the capture is whole");
    expect(!g.backend().failure().ok(), "and the pass is over");
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

}  // namespace
