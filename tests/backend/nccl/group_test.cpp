#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/gpus.hpp>
#include <support/words.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

// What goes wrong before anything is given to NCCL: the communicator goes on.

namespace {

using tutti::errc;
using tutti_test::complaint;
using tutti_test::contains;

std::size_t given_to_nccl(fake::machine& machine) {
  std::size_t n = 0;
  for (const fake::call& c : machine.calls()) n += c.what != "launch";
  return n;
}

/// To the next rank, from the one before: whether it arrives.
void exchange(gpus& g, std::vector<float>& mine, std::vector<float>& theirs) {
  const int next = (g.rank() + 1) % g.size(), before = (g.rank() + g.size() - 1) % g.size();
  mine[0] = static_cast<float>(g.rank());
  auto both = [&] {
    const tutti::nccl_group together{g};
    return std::pair{g.send(on_device(mine), next), g.recv(on_device(theirs), before)};
  }();
  both.first.wait();
  both.second.wait();
  CHECK(theirs[0] == static_cast<float>(before));
}

TEST_CASE("nccl: a stream of another device is a usage_error that names both") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, auto& world) {
    fake_stream own{g.rank()}, foreign{g.rank() + 2};
    std::vector<float> v(1, 1), w(1);
    const auto issue = [&](tutti::stream_ref s) { return g.all_reduce(on_device(v), tutti::sum, {.stream = s}); };
    const std::string here = std::to_string(g.rank()), there = std::to_string(g.rank() + 2);
    CHECK(complaint([&] { issue(foreign).wait(); }) == "all_reduce: its stream is one of device " + there +
                                                           ", but this communicator is for device " + here +
                                                           "; pass a stream of that one: call_options{.stream = ...}");
    auto prepared = g.prepare().all_reduce(on_device(v), tutti::sum, {.stream = foreign});
    CHECK(contains(complaint([&] { prepared.start().wait(); }), "of device " + there));
    CHECK(contains(complaint([&] {
                     const tutti::nccl_group together{g};
                     auto sent = g.send(on_device(v), 1 - g.rank(), 0, {.stream = own});
                     auto received = g.recv(on_device(w), 1 - g.rank(), 0, {.stream = foreign});
                     FAIL("a receive in a foreign stream");
                   }),
                   "recv: its stream is one of device " + there));
    CHECK(given_to_nccl(machine) == 0);
    CHECK(g.backend().failure().ok());
    world.barrier().wait();
    exchange(g, v, w);
    v[0] = 1;
    issue(own).join(foreign);  // what another device's stream does next may come after it
    issue({}).wait();
    CHECK(v[0] == 4);
    world.barrier().wait();

    // Before CUDA 12.8.
    if (g.rank() == 0) machine.fail("cudaStreamGetDevice", {.code = 801, .always = true});
    world.barrier().wait();
    CHECK(contains(complaint([&] { issue(foreign).wait(); }),
                   "its stream is of another device, or was destroyed (CUDA 12.8"));
    issue(own).wait();
    CHECK(v[0] == 8);
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: a group that an exception leaves begins nothing, and the next one works") {
  for (const int polls : {0, 2}) {
    fake::machine machine;
    machine.polls_per_launch = polls;
    run_gpus(2, [&](gpus& g, auto& world) {
      std::vector<float> a(1, 1), b(1, 1), c(1, 1);
      const int other = 1 - g.rank();
      // Both in one expression, the first of which is destroyed inside the group.
      CHECK(contains(complaint([&] {
                       const tutti::nccl_group together{g};
                       auto both = std::pair{g.send(on_device(a), other), g.recv(on_device(b), g.size())};
                     }),
                     "recv on rank "));
      // Handles that live on.
      std::vector<tutti::basic_nccl<fake::nccl>::op_type> all;
      errc kind{};
      try {
        const tutti::nccl_group together{g};
        all.push_back(g.all_reduce(on_device(a)));
        all.push_back(g.all_reduce(on_device(b)));
        throw std::runtime_error("the user's");
      } catch (const std::runtime_error&) {
        const std::string words = words_of([&] { all[0].wait(); }, kind);
        CHECK(kind == errc::aborted);
        CHECK(contains(words, "was not begun: its group was left by an exception"));
      }
      CHECK(all[1].done());
      all.clear();
      // One inside another, which goes on.
      {
        const tutti::nccl_group outer{g};
        all.push_back(g.all_reduce(on_device(a)));
        CHECK(contains(complaint([&] {
                         const tutti::nccl_group inner{g};
                         auto lost = g.all_reduce(on_device(b));
                         auto refused = g.broadcast(on_device(b), 7);
                       }),
                       "root 7"));
        all.push_back(g.all_reduce(on_device(c)));
      }
      for (auto& o : all) o.wait();
      CHECK(a[0] == 2);
      CHECK(b[0] == 1);
      CHECK(c[0] == 2);
      CHECK(g.backend().failure().ok());
      exchange(g, a, b);
      world.barrier().wait();
    });
    CHECK(machine.misuses == 0);
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("nccl: an operation cannot end inside its group, and one that is dropped there is told of") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, auto&) {
    fake_stream compute{g.rank()};
    std::vector<float> a(1, 1), b(1, 1);
    auto early = g.all_reduce(on_device(b));
    auto running = [&] {
      const tutti::nccl_group together{g};
      early.wait();  // is not of the group
      auto mine = g.all_reduce(on_device(a));
      CHECK(contains(complaint([&] { mine.wait(); }), "all_reduce: its group is still open"));
      CHECK(contains(complaint([&] { g.all_reduce(on_device(a)).join(compute); }), "its group is still open"));
      const auto awaits = [](auto o) -> tutti::task<> { co_await std::move(o); };
      CHECK(
          contains(complaint([&] { tutti::sync_wait(g.engine(), awaits(g.all_reduce(on_device(a)))); }), "still open"));
      return std::jthread{[o = std::move(mine)]() mutable { o.wait(); }};  // as long as it takes
    }();
    running.join();
    CHECK(a[0] == 2);
    {
      const tutti::nccl_group together{g};
      static_cast<void>(g.all_reduce(on_device(b)));
    }
    const std::string words = complaint([&] { g.barrier().wait(); });
    CHECK(words.find("all_reduce (group_test.cpp:") == 0);
    CHECK(contains(words, "was issued in a group, and its handle was dropped before the group ended"));
    g.all_reduce(on_device(b)).wait();
    CHECK(b[0] == 4);
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: a group that is left in a capture leaves nothing in the graph") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, auto& world) {
    fake_stream compute{g.rank()};
    std::vector<float> a(1, 1);
    const auto issue = [&] { return g.all_reduce(on_device(a), tutti::sum, {.stream = compute}); };
    machine.begin_capture(compute.native());
    CHECK(contains(complaint([&] {
                     const tutti::nccl_group together{g};
                     auto first = issue();
                     auto second = g.recv(on_device(a), g.rank(), 0, {.stream = compute});
                   }),
                   "with itself"));
    issue().join(compute);
    const auto step = machine.end_capture(compute.native());
    REQUIRE(step);
    CHECK(step->nodes.size() == 1);
    world.barrier().wait();
    machine.replay(step, compute.native());
    issue().wait();
    CHECK(a[0] == 4);
    world.barrier().wait();
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

}  // namespace
