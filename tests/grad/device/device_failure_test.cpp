#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <utility>
#include <vector>

#include "grad/device/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

// What fails on one device ends the pass on all ranks, and nothing is left behind.

namespace {

using namespace device_ranks;
using host = ranks::communicator;
using tutti::errc;
using tutti::grad::device_compress_hook;
using tutti::grad::reducer_options;
using tutti::grad::step;

/// How each rank ended that ran `f(devices, world)`.
template <class F>
std::vector<ranks::outcome> outcomes(int n, F f) {
  std::vector<ranks::outcome> all(static_cast<std::size_t>(n));
  std::latch ended(n);
  run_gpus(n,
           [&](gpus& g, host& world) {
             all[static_cast<std::size_t>(g.rank())] = ranks::outcome_of([&] { f(g, world); });
             ended.arrive_and_wait();
           },
           {.patience = std::chrono::milliseconds{500}});
  return all;
}

/// Everything that a reducer asks of a device.
void some_passes(gpus& g, host& world, fake_stream& s, fake_stream& other) {
  const reducer_options options{.limits = {64, 64}, .unused = tutti::grad::unused_parameters::tracked};
  device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}, {"c", 20, dtype::bf16}}, options,
                         device_compress_hook<tutti::bfloat16, kernels>{}};
  for (int i = 0; i < 3; ++i) {
    auto pass = reducer.begin(g.rank() == 0 ? i : 1, s);
    pass.ready(2, i == 1 ? other : s);
    pass.unused(1);
    pass.ready(0);
    i == 2 ? pass.finish().wait() : pass.finish().join(s);
  }
}

TEST_CASE("device_reducer: an error of any call of CUDA, NCCL or a kernel, at any time, ends all ranks") {
  const char* const calls[] = {"cudaMalloc",
                               "ncclMemAlloc",
                               "ncclCommWindowRegister",
                               "ncclCommWindowDeregister",
                               "cudaStreamCreateWithPriority",
                               "cudaEventCreateWithFlags",
                               "cudaGetDevice",
                               "cudaSetDevice",
                               "cudaEventRecord",
                               "cudaEventQuery",
                               "cudaStreamWaitEvent",
                               "cudaMemsetAsync",
                               "cudaStreamQuery",
                               "cudaMemcpyAsync",
                               "ncclAllReduce",
                               "ncclGroupStart",
                               "ncclGroupEnd",
                               "ncclRedOpCreatePreMulSum",
                               "cast"};
  std::size_t failed = 0;
  for (const std::string call : calls) {
    for (const int skip : {0, 1, 3}) {
      fake::machine machine;
      const auto all = outcomes(2, [&](gpus& g, host& world) {
        fake_stream s{g.rank()}, other{g.rank()};
        world.barrier().wait();
        if (g.rank() == 1) machine.fail(call, {call.starts_with("nccl") ? 3 : 700, skip, 1});
        world.barrier().wait();
        some_passes(g, world, s, other);
        g.barrier().wait();
      });
      CAPTURE(call);
      CAPTURE(skip);
      CAPTURE(all[1].text);
      CHECK(all[0].fine() == all[1].fine());
      failed += !all[1].fine();
      if (!all[1].fine())
        CHECK(all[1].says(call == "cast"             ? "kernel"
                          : call == "ncclMemAlloc"   ? call
                          : call.starts_with("nccl") ? "NCCL"
                                                     : call));
      CHECK(machine.left() == 0);
      CHECK(machine.misuses == 0);
    }
  }
  CHECK(failed >= 32);
}

TEST_CASE("device_reducer: memory that one device does not have is named on all ranks") {
  for (const char* const call : {"cudaMalloc", "ncclMemAlloc"}) {
    fake::machine machine;
    machine.last_error = "Cuda failure 2 'out of memory'";
    const auto all = outcomes(3, [&](gpus& g, host& world) {
      fake_stream s{g.rank()}, other{g.rank()};
      world.barrier().wait();
      if (g.rank() == 2) machine.fail(call, {2, 0, 2});
      world.barrier().wait();
      some_passes(g, world, s, other);
    });
    for (const auto& how : all) CHECK(how.failed == errc::out_of_resources);
    CHECK(all[2].says("free device memory"));
    CHECK(all[0].says("rank 2 could not begin"));
    CHECK(machine.windows == 0);
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("device_reducer: a rank that runs out of memory keeps all from the same step, on hosts and devices") {
  fake::machine machine;
  run_gpus(3, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}, {"c", 20}}, reducer_options{.limits = {64, 64}}};
    for (int i = 0; i < 5; ++i) {
      world.barrier().wait();
      if (i == 2 && g.rank() == 1) machine.fail("cudaMalloc", {2, 0, 1});
      world.barrier().wait();
      auto pass = reducer.begin(1, s);
      for (std::size_t p = 3; p-- > 0;) {
        write(s, reducer.gradient<float>(p), std::vector<float>(20, static_cast<float>(i)));
        try {  // activations of the backward pass
          const tutti::cuda::basic_device_memory<float, fake::cuda> more{g.rank(), 100};
          pass.ready(p);
        } catch (const tutti::error& e) {
          ranks::expect(e.kind() == errc::out_of_resources, e.what());
          pass.skip(step::skip_failure);
          break;
        }
      }
      const step all = pass.finish().join(s);
      ranks::expect(all == (i == 2 ? step::skip_failure : step::apply), "on the hosts");
      ranks::expect((read(g, s, reducer.found_inf())[0] != 0) == (i == 2), "on the devices");
      if (i != 2)
        ranks::expect(read(g, s, reducer.gradient<float>(0))[19] == static_cast<float>(i), "and others apply");
    }
  });
  std::size_t launches = 0, sums = 0;
  for (const auto& c : machine.calls()) launches += c.what == "launch", sums += c.what == "ncclAllReduce";
  CHECK(sums == 3 * 5 * 4);
  CHECK(launches == 3 * 5);  // no message of its own: in the last bucket's launch, as ever
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
}

TEST_CASE("device_reducer: a pass that is dropped, at any time, or a world that is aborted, ends all ranks") {
  for (int where = 0; where < 5; ++where) {
    fake::machine machine;
    const auto all = outcomes(3, [&](gpus& g, host& world) {
      fake_stream s{g.rank()};
      device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}, {"c", 20}}, reducer_options{.limits = {64, 64}}};
      (void)pass_of(reducer, s, 1);
      const bool mine = g.rank() == 1;
      auto pass = reducer.begin(1, s);
      if (mine && where == 0) throw std::runtime_error("the backward pass");
      pass.ready(2);
      if (mine && where == 1) world.abort();
      pass.ready(1);
      if (mine && where == 2) (void)pass.finish();  // without a mark
      pass.ready(0);
      auto completion = pass.finish();
      if (mine && where == 3) throw std::runtime_error("before the pass is complete");
      if (mine && where == 4) g.abort();
      (void)std::move(completion).join(s);
      for (int i = 0; i < 3; ++i) (void)pass_of(reducer, s, 1);
    });
    CAPTURE(where);
    for (const auto& how : all) CHECK(!how.fine());
    CHECK(machine.left() == 0);
    CHECK(machine.misuses == 0);
  }
}

TEST_CASE("device_reducer: who waits for its device, to lay out buckets anew, hears of the others' failure meanwhile") {
  fake::machine machine;
  std::vector<ranks::outcome> all(2);
  const auto under_way = [&] {  // rank 0 has memory for the new plan
    return std::ranges::count_if(machine.calls(),
                                 [](const fake::call& c) { return c.what == "ncclMemAlloc" && c.rank == 0; }) == 2;
  };
  run_gpus(2,
           [&](gpus& g, host& world) {
             fake_stream s{g.rank()}, stuck{g.rank()};
             device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}}, reducer_options{.limits = {64, 64}}};
             {
               auto pass = reducer.begin(1, s);
               pass.ready(0), pass.ready(1);
               pass.finish().wait();
             }
             std::optional<std::jthread> other;
             if (g.rank() == 0)
               machine.launch(stuck.native(), [] { return false; });
             else
               other.emplace([&] {
                 while (!under_way()) std::this_thread::yield();
                 g.abort();
               });
             all[static_cast<std::size_t>(g.rank())] =
                 ranks::outcome_of([&] { (void)tutti::sync_wait(g, reducer.rebuild(g.rank() == 0 ? stuck : s)); });
           },
           {.timeout = std::chrono::seconds{20}, .patience = std::chrono::milliseconds{200}});
  CHECK(all[0].failed == errc::aborted);
  CHECK(all[0].says("aborted by rank 1"));
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
}

}  // namespace
