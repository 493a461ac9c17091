#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <support/gpus.hpp>

#include "backend/nccl/breaking.hpp"

// An error in each call of NCCL's that an operation is made of, or the end of a communicator.

namespace {

using namespace std::chrono_literals;
using tutti::errc;

/// The same when one call of rank 1 fails.
template <class F>
std::vector<outcome> after_error_in(const char* call, int skip, F collective) {
  fake::machine machine;
  return rounds_broken_by(machine, collective, [&] { machine.fail(call, {3, skip, 1}); });
}

/// Something of two elements for each rank.
struct buffers {
  std::vector<float> in = std::vector<float>(4, 1), out = std::vector<float>(4);
  std::vector<std::size_t> counts{2, 2};
  [[nodiscard]] tutti::cuda::device_span<float> all() { return on_device(in); }
  [[nodiscard]] tutti::cuda::device_span<float> part() { return on_device(in).first(2); }
  [[nodiscard]] tutti::cuda::device_span<float> result() { return on_device(out); }
  [[nodiscard]] tutti::cuda::device_span<float> result_part() { return on_device(out).first(2); }
};

struct row {
  const char* call;
  int skip;  ///< of the same in one operation
  const char* collective;
  void (*run)(gpus&, buffers&);
};
constexpr row rows[] = {
    {"ncclReduce", 0, "reduce", [](gpus& g, buffers& b) { g.reduce(b.all(), b.result(), 0).wait(); }},
    {"ncclReduce", 1, "reduce_scatter_v",
     [](gpus& g, buffers& b) { g.reduce_scatter_v(b.all(), b.result_part(), b.counts).wait(); }},
    {"ncclReduceScatter", 0, "reduce_scatter",
     [](gpus& g, buffers& b) { g.reduce_scatter(b.all(), b.result_part()).wait(); }},
    {"ncclAllGather", 0, "all_gather", [](gpus& g, buffers& b) { g.all_gather(b.part(), b.result()).wait(); }},
    {"ncclSend", 1, "all_to_all_v",
     [](gpus& g, buffers& b) { g.all_to_all_v(b.all(), b.counts, b.result(), b.counts).wait(); }},
    {"ncclRecv", 1, "all_to_all_v",
     [](gpus& g, buffers& b) { g.all_to_all_v(b.all(), b.counts, b.result(), b.counts).wait(); }},
    {"ncclSend", 0, "gather_v", [](gpus& g, buffers& b) { g.gather_v(b.part(), b.result(), b.counts, 0).wait(); }},
    {"ncclRecv", 0, "scatter_v",
     [](gpus& g, buffers& b) { g.scatter_v(b.all(), b.result_part(), b.counts, 0).wait(); }},
    {"ncclAlltoAll", 0, "all_to_all", [](gpus& g, buffers& b) { g.all_to_all(b.all(), b.result()).wait(); }},
    {"ncclGather", 0, "gather", [](gpus& g, buffers& b) { g.gather(b.part(), b.result(), 1).wait(); }},
    {"ncclScatter", 0, "scatter", [](gpus& g, buffers& b) { g.scatter(b.all(), b.result_part(), 1).wait(); }},
    {"ncclRedOpDestroy", 0, "all_reduce",
     [](gpus& g, buffers& b) { g.all_reduce(b.all(), tutti::premul_sum(0.5)).wait(); }},
};

TEST_CASE("nccl: an error in any call of an operation ends both ranks, by name, and leaves nothing behind") {
  for (const row& r : rows) {
    const std::string call = r.call, collective = r.collective;
    CAPTURE(call);
    CAPTURE(collective);
    const auto told = after_error_in(r.call, r.skip, [&](gpus& g) {
      buffers b;
      r.run(g, b);
    });
    CHECK(told[1].kind == errc::device);
    CHECK(told[1].words.find("NCCL met \"internal error\" in " + collective) != std::string::npos);
    CHECK(told[0].kind == errc::device);
    CHECK(told[0].words.find("rank 1") != std::string::npos);
  }
}

TEST_CASE("nccl: messages of a group end both ranks when one of them fails") {
  for (const std::string call : {"ncclSend", "ncclRecv"}) {
    CAPTURE(call);
    const auto told = after_error_in(call.c_str(), 0, [](gpus& g) {
      buffers b;
      auto both = [&] {
        tutti::nccl_group together{g};
        return std::pair{g.send(b.part(), 1 - g.rank()), g.recv(b.result_part(), 1 - g.rank())};
      }();
      both.first.wait();
      both.second.wait();
    });
    CHECK(told[1].kind == errc::device);
    CHECK(told[1].words.find("NCCL met \"internal error\" in send") != std::string::npos);  // the group's first
    CHECK(told[0].kind == errc::device);
  }
}

TEST_CASE("nccl: a shutdown that fails is no error of anybody's, and what did not end is aborted") {
  for (const std::string call : {"ncclCommFinalize", "ncclCommDestroy"}) {
    CAPTURE(call);
    fake::machine machine;
    run_gpus(2,
             [&](gpus& g, auto& world) {
               if (g.rank() == 1) machine.fail(call, {3, 0, -1});
               world.barrier().wait();
               g.barrier().wait();
             },
             {.patience = 200ms});
    const auto calls = machine.calls();
    const auto aborted = std::ranges::count(calls, std::string("ncclCommAbort"), &fake::call::what);
    // NCCL takes a communicator that it was to destroy for gone, whatever it says: an abort would be another end.
    CHECK(aborted == (call == "ncclCommFinalize" ? 1 : 0));
    CHECK(machine.left() == (call == "ncclCommFinalize" ? 0U : 1U));
    CHECK(machine.misuses == 0);
  }
}

}  // namespace
