#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/gpus.hpp>

#include "backend/nccl/breaking.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::errc;

/// The same of several operations, waited for and joined.
template <class F>
std::vector<outcome> after_breaking(fake::machine& machine, F break_it, tutti::nccl_options how = {.patience = 200ms}) {
  const auto round = [](gpus& g) {
    std::vector<float> v(3, 1);
    g.all_reduce(on_device(v), tutti::premul_sum(1)).wait();
    const std::vector<std::size_t> ones(2, 1);
    std::vector<float> all(2);
    g.all_gather_v(on_device(v).first(1), on_device(all), ones).wait();
    auto joined = g.all_reduce(on_device(v));
    std::move(joined).join({});
    g.barrier().wait();
  };
  return rounds_broken_by(machine, round, break_it, how);
}

TEST_CASE("nccl: an error in any call ends both ranks, by name, and leaves nothing behind") {
  for (const std::string call : {"cudaEventRecord", "cudaEventQuery", "cudaStreamWaitEvent", "ncclAllReduce",
                                 "ncclGroupStart", "ncclGroupEnd", "ncclBroadcast", "ncclRedOpCreatePreMulSum"})
    for (const int skip : {0, 1}) {
      CAPTURE(call);
      CAPTURE(skip);
      fake::machine machine;
      const bool of_cuda = call.starts_with("cuda");
      const auto told = after_breaking(machine, [&] { machine.fail(call, {of_cuda ? 700 : 3, skip, 1}); });
      CHECK(told[1].kind == errc::device);
      CHECK(told[1].words.find(of_cuda ? call + " failed on device 1: cudaErrorIllegalAddress"
                                       : "NCCL met \"internal") != std::string::npos);
      CHECK(told[0].kind == errc::device);
      CHECK(told[0].words.find("rank 1") != std::string::npos);
    }
}

TEST_CASE("nccl: an asynchronous error of the network is a lost peer, once the host's world had its say") {
  fake::machine machine;
  machine.polls_per_launch = 2;
  const auto told = after_breaking(machine, [&] { machine.fail("ncclCommGetAsyncError", {6, 0, 1}); });
  CHECK(told[1].kind == errc::peer_lost);
  CHECK(told[0].kind == errc::peer_lost);
}

TEST_CASE("nccl: what the host's world knows of a peer goes before what NCCL says") {
  fake::machine machine;
  std::vector<outcome> told(2);
  std::atomic<bool> issued{false};
  const auto ranks = [&](gpus& g, auto& world) {
    if (g.rank() == 1) {
      while (!issued) std::this_thread::yield();
      machine.fail("ncclCommGetAsyncError", {3, 0, 0, true});  // on the other rank
      world.abort();
      throw tutti::error{{errc::aborted}, "gone"};
    }
    std::vector<float> v(1, 1);
    auto running = g.all_reduce(on_device(v));
    issued = true;
    told[0].words = words_of([&] { running.wait(); }, told[0].kind);
  };
  CHECK_THROWS_AS(run_gpus(2, ranks), tutti::error);
  CHECK(told[0].kind == errc::aborted);
  CHECK(told[0].words.find("aborted by rank 1") != std::string::npos);
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: a deadline ends a collective that another rank does not call") {
  fake::machine machine;
  std::vector<outcome> told(2);
  run_gpus(2, [&](gpus& g, auto&) {
    std::vector<float> v(1, 1);
    auto& mine = told[static_cast<std::size_t>(g.rank())];
    if (g.rank() == 0) {
      auto waits = g.all_reduce(on_device(v), tutti::sum, {.timeout = 30ms});
      auto behind = g.barrier();
      mine.words = words_of([&] { waits.wait(); }, mine.kind);
      CHECK(nothrow(std::move(behind)).wait().code == errc::timed_out);
    } else {
      // This rank has a deadline of minutes, and hears of the other's.
      std::vector<float> w(1, 1);
      while (g.backend().failure().ok()) g.engine().poll();
      mine.words = words_of([&] { g.barrier().wait(); }, mine.kind);
    }
  });
  CHECK(told[0].kind == errc::timed_out);
  CHECK(told[0].words.find("all_reduce #1") == 0);
  CHECK(told[0].words.find(": waiting for a rank that could not be determined") != std::string::npos);
  CHECK(told[1].kind == errc::timed_out);
  // NCCL stops, and could be shrunk.
  const auto calls = machine.calls();
  CHECK(std::ranges::count(calls, std::string("ncclCommRevoke"), &fake::call::what) == 2);
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: a communicator that NCCL is launching for, or failed to, is aborted and not revoked") {
  const auto made = [](fake::machine& machine, const char* call) {
    const auto calls = machine.calls();
    return std::ranges::count(calls, std::string(call), &fake::call::what);
  };
  {
    fake::machine machine;
    machine.polls_per_launch = 1 << 30;
    std::atomic<int> issued{0};  // not a barrier, which the failure could overtake
    run_gpus(2, [&](gpus& g, auto&) {
      std::vector<float> v(1, 1);
      auto running = g.all_reduce(on_device(v));
      ++issued;
      while (issued < 2) std::this_thread::yield();
      if (g.rank() == 1) g.abort();
      CHECK(nothrow(std::move(running)).wait().code == errc::aborted);
    });
    CHECK(made(machine, "ncclCommRevoke") == 0);
    CHECK(made(machine, "ncclCommAbort") == 2);
    CHECK(machine.misuses == 0);
  }
  fake::machine machine;
  const auto told = after_breaking(machine, [&] { machine.fail("ncclAllReduce", {6, 0, 1}); });
  CHECK(told[1].kind == errc::peer_lost);
  CHECK(made(machine, "ncclCommRevoke") == 1);  // the other's
}

TEST_CASE("nccl: a loop that only joins hears that another rank is gone") {
  fake::machine machine;
  errc kind{};
  const auto ranks = [&](gpus& g, auto& world) {
    fake_stream compute{g.rank()};
    std::vector<float> v(1, 1);
    if (g.rank() == 1) {
      world.abort();
      throw tutti::error{{errc::aborted}, "gone"};
    }
    const auto limit = tutti::after(20s);
    words_of(
        [&] {
          while (tutti::clock::now() < limit) g.all_reduce(on_device(v), tutti::sum, {.stream = compute}).join(compute);
        },
        kind);
  };
  CHECK_THROWS_AS(run_gpus(2, ranks, {.calls = tutti::nccl_calls::blocking, .patience = 200ms}), tutti::error);
  CHECK(kind == errc::aborted);
}

TEST_CASE("nccl: a join after a failure throws that, though the device is still at work on the operation") {
  for (const bool captures : {false, true}) {
    fake::machine machine;
    errc kind{};
    run_gpus(1,
             [&](gpus& g, auto&) {
               fake_stream compute{0}, update{0};
               std::vector<float> v(1, 1);
               if (captures)
                 machine.begin_capture(compute.native());
               else
                 machine.launch(compute.native(), [] { return false; });
               auto running = g.all_reduce(on_device(v), tutti::sum, {.stream = compute});
               g.abort();
               words_of([&] { std::move(running).join(captures ? compute : update); }, kind);
               if (captures) static_cast<void>(machine.end_capture(compute.native()));
             },
             {.patience = 40ms});
    CHECK(kind == errc::aborted);
  }
}

TEST_CASE("nccl: an operation whose buffers the device still uses ends when it has stopped, or its patience is over") {
  fake::machine machine;
  machine.gate_open = false;  // ncclCommAbort hangs
  run_gpus(1,
           [&](gpus& g, auto&) {
             fake_stream compute{g.rank()};
             machine.launch(compute.native(), [] { return false; });  // a kernel that never ends
             auto stuck = g.barrier({.timeout = 5ms, .stream = compute});
             const auto began = tutti::clock::now();
             CHECK(nothrow(std::move(stuck)).wait().code == errc::timed_out);
             CHECK(tutti::clock::now() - began >= 40ms);
           },
           {.patience = 40ms});
  // Nothing hung; what could not be ended is left behind: the communicator and the byte of its barrier.
}

TEST_CASE("nccl: a shutdown that hangs is given up") {
  fake::machine machine;
  machine.finalize_hangs = true;
  run_gpus(2, [](gpus& g, auto&) { g.barrier().wait(); }, {.patience = 100ms});
  CHECK(machine.communicators == 0);  // aborted in the end
}

TEST_CASE("nccl: abort() from another thread ends what is in flight, whenever it comes") {
  for (int i = 0; i < 20; ++i) {
    fake::machine machine;
    machine.polls_per_launch = i % 3;
    std::atomic<int> inside{0}, started{0};
    run_gpus(2, [&](gpus& g, auto&) {
      std::optional<std::jthread> other;
      ++inside;
      if (g.rank() == 1)
        other.emplace([&] {
          while (inside < 2 || started < 2 * (i % 5)) std::this_thread::yield();
          g.abort();
        });
      std::vector<float> v(8, 1);
      errc kind{};
      words_of(
          [&] {
            for (;;) {
              ++started;
              g.all_reduce(on_device(v), tutti::max).wait();
            }
          },
          kind);
      CHECK(kind == errc::aborted);
    });
    CHECK(machine.left() == 0);
    CHECK(machine.misuses == 0);
  }
}

TEST_CASE("nccl: a communicator that is destroyed in the middle of operations aborts them") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, auto&) {
    std::vector<float> v(1, 1);
    if (g.rank() == 0) {
      std::optional<gpus::started<tutti::all_reduce_args>> running;
      {
        gpus last = std::move(g);
        running.emplace(last.all_reduce(on_device(v)));
      }
      CHECK(nothrow(*std::move(running)).wait().code == errc::aborted);
    } else {
      while (g.backend().failure().ok()) g.engine().poll();
    }
  });
  CHECK(machine.left() == 0);
}

}  // namespace
