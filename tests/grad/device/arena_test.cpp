#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device/arena.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <vector>

#include "grad/device/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

// Where the gradients of a reducer on devices lie; how they are reduced is tested with the reducer.

namespace {

using namespace device_ranks;
using ranks::expect;
using host = ranks::communicator;
using tutti::grad::reducer_options;
using tutti::grad::step;

/// What was asked of memory and windows, in order, up to the end of the communicator, which frees a byte.
std::string asked_of_memory(fake::machine& machine) {
  std::string all;
  for (const auto& c : machine.calls())
    if (c.what.find("Mem") != std::string::npos || c.what.find("Window") != std::string::npos || c.what == "cudaFree")
      all += c.what + " ";
  return all;
}

TEST_CASE("device_arena: its memory is NCCL's, registered once and again with a new plan, where there is such memory") {
  using tutti::nccl_feature;
  struct library {
    int version;
    std::set<nccl_feature> lacking;
    bool memory, windows;
  };
  const library all[] = {{22809, {}, true, true},
                         {22809, {nccl_feature::windows}, true, false},
                         {22809, {nccl_feature::windows, nccl_feature::memory}, false, false},
                         {21805, {}, false, false}};
  for (const library& lib : all) {
    fake::machine machine;
    machine.version = lib.version;
    machine.lacking = lib.lacking;
    machine.polls_per_launch = 1;
    run_gpus(1, [&](gpus& g, host& world) {
      fake_stream s{g.rank()};
      device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}}, reducer_options{.limits = {64, 64}}};
      for (int i = 0; i < 3; ++i) {
        auto pass = reducer.begin(1, s);
        for (const std::size_t p : {0u, 1u})
          write(s, reducer.gradient<float>(p), std::vector<float>(20, 2)), pass.ready(p);
        expect(pass.finish().join(s) == step::apply, "a pass");
      }
      expect(tutti::sync_wait(g, reducer.rebuild(s)), "another plan");
      expect(read(g, s, reducer.gradient<float>(1))[19] == 2, "which keeps the gradients");
    });
    const std::string made =
        std::string(lib.memory ? "ncclMemAlloc " : "") + (lib.windows ? "ncclCommWindowRegister " : "");
    const std::string ended = std::string("cudaFree ") +  // NCCL's may free without waiting for the device
                              (lib.windows ? "ncclCommWindowDeregister " : "") + (lib.memory ? "ncclMemFree " : "");
    const std::string wanted = made + made + ended + ended + "cudaFree ";  // two plans, and the communicator's
    CHECK(asked_of_memory(machine) == wanted);
    const std::byte *begin = nullptr, *end = nullptr;
    int outside = 0, sums = 0;
    for (const auto& c : machine.calls()) {
      if (c.what == "ncclCommWindowRegister") end = (begin = static_cast<const std::byte*>(c.out)) + c.count;
      if (c.what == "ncclAllReduce") ++sums, outside += lib.windows && (c.in < begin || c.in >= end || c.out != c.in);
    }
    CHECK(sums == 9);
    CHECK(outside == 0);
    CHECK(machine.misuses == 0);
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("device_arena: memory that NCCL does not take is used as it is") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    world.barrier().wait();
    if (g.rank() == 0) machine.fail("ncclCommWindowRegister", {.code = 5, .always = true});
    world.barrier().wait();
    device_reducer reducer{g, world, shapes{{"a", 20}}};
    for (int i = 0; i < 2; ++i) (void)pass_of(reducer, s, static_cast<float>(g.rank() * 4));
    expect(read(g, s, reducer.gradient<float>(0))[19] == 2, "the mean");
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

}  // namespace
