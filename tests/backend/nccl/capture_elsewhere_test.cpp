#include <doctest/doctest.h>

#include <vector>

#include <support/gpus.hpp>
#include <tutti/backend/nccl/memory.hpp>

// A capture into a graph forbids all threads of the process much that a communicator does: it does it nevertheless.

namespace {

using tutti::errc;
using tutti::nccl_calls;

TEST_CASE("nccl: a communicator begins, works and ends while a capture that it is no part of is open") {
  for (const nccl_calls calls : {nccl_calls::nonblocking, nccl_calls::blocking})
    for (const bool fails : {false, true}) {
      CAPTURE(fails);
      fake::machine machine;
      tutti::run_threads(1, [&](tutti::communicator<tutti::threads>& world) {
        fake::rank = 0;
        fake::current_device = 0;
        fake_stream elsewhere{0}, compute{0};
        machine.begin_capture(elsewhere.native());
        {
          gpus g = tutti::make_nccl<fake::nccl>(world, {.calls = calls});
          const tutti::basic_nccl_memory<float, fake::nccl> memory{g, 4};
          CHECK(memory.registered());
          for (float& x : memory.span()) x = 3;
          g.all_reduce(memory.span(), tutti::sum, {.stream = compute}).join(compute);
          g.all_reduce(memory.span(), tutti::sum, {.stream = compute}).wait();
          CHECK(compute.done());
          CHECK(memory.span().data()[3] == 3);
          if (fails) g.abort();
        }
        CHECK(machine.end_capture(elsewhere.native()));
      });
      CHECK(machine.misuses == 0);
      CHECK(machine.left() == 0);
    }
}

}  // namespace
