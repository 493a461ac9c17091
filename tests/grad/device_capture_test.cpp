#include <doctest/doctest.h>

#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device_reducer.hpp>

#include "grad/device_ranks.hpp"
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
}  // namespace
