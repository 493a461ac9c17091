#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <support/gpus.hpp>
#include <support/words.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

namespace {

using tutti::errc;
using tutti::nccl_calls;
using tutti_test::complaint;
using tutti_test::contains;

TEST_CASE("nccl: a captured step is replayed in order, beside operations that run") {
  for (const nccl_calls calls : {nccl_calls::nonblocking, nccl_calls::blocking})
    for (const int polls : {0, 2}) {
      fake::machine machine;
      machine.polls_per_launch = polls;
      std::atomic<bool> open{false};
      run_gpus(2,
               [&](gpus& g, auto& world) {
                 fake_stream compute{g.rank()}, side{g.rank()};
                 std::optional<tutti::progress_thread> helper;
                 if (g.rank() == 1) helper.emplace(g.engine());
                 std::vector<float> v(4, 0), w(1, 0);
                 std::vector<float> seen;
                 machine.launch(side.native(), [&] { return open.load(); });
                 auto before = g.all_reduce(on_device(w), tutti::sum, {.stream = side});  // polled during the capture
                 machine.begin_capture(compute.native());
                 machine.launch(compute.native(), [&] { return v.assign(4, static_cast<float>(g.rank() + 1)), true; });
                 auto first = g.all_reduce(on_device(v), tutti::sum, {.stream = compute});
                 machine.launch(compute.native(), [&] { return w[0] += 1, true; });
                 auto second = g.all_reduce(on_device(v), tutti::premul_sum(2), {.stream = compute});
                 std::vector<gpus::started<tutti::all_reduce_args>> both;
                 {
                   tutti::nccl_group together{g};
                   both.push_back(g.all_reduce(on_device(v), tutti::max, {.stream = compute}));
                   both.push_back(g.all_reduce(on_device(w), tutti::max, {.stream = compute}));
                 }
                 for (int i = 0; i < 5; ++i) g.engine().poll();
                 std::move(first).join(compute);
                 std::move(second).join(compute);
                 for (auto& o : both) std::move(o).join(compute);
                 machine.launch(compute.native(), [&] { return seen.push_back(v[3]), true; });
                 const auto step = machine.end_capture(compute.native());
                 REQUIRE(step);
                 CHECK(seen.empty());
                 CHECK(w[0] == 0);
                 CHECK(!before.done());
                 world.barrier().wait();
                 open = true;
                 before.wait();
                 for (int i = 0; i < 3; ++i) {
                   machine.replay(step, compute.native());
                   g.all_reduce(on_device(v), tutti::sum, {.stream = compute}).wait();
                   CHECK(v[0] == 24);
                 }
                 CHECK(seen == std::vector<float>(3, 12));
                 CHECK(w[0] == 3);
                 world.barrier().wait();
               },
               {.calls = calls});
      CHECK(machine.misuses == 0);
      CHECK(machine.left() == 0);
    }
}

TEST_CASE("nccl: a captured operation that is not joined is a usage_error, and the communicator goes on") {
  fake::machine machine;
  for (const int polls : {0, 2}) {
    machine.polls_per_launch = polls;
    run_gpus(2, [&](gpus& g, auto& world) {
      fake_stream compute{g.rank()};
      std::vector<float> v(1, 1);
      const auto issue = [&] { return g.all_reduce(on_device(v), tutti::sum, {.stream = compute}); };
      const auto captured = [&](auto f) {
        machine.begin_capture(compute.native());
        f();
        return machine.end_capture(compute.native()) != nullptr;
      };
      std::string words;
      CHECK(!captured([&] { words = complaint([&] { issue().wait(); }); }));
      CHECK(words.find("all_reduce #1 (captured_test.cpp:") == 0);
      CHECK(contains(words, "the only end for its handle is join(stream)"));
      const auto awaits = [](auto o) -> tutti::task<> { co_await std::move(o); };
      CHECK(!captured([&] { words = complaint([&] { tutti::sync_wait(g.engine(), awaits(issue())); }); }));
      CHECK(contains(words, "join(stream)"));
      CHECK(!captured([&] { CHECK(nothrow(issue()).wait().code == errc::device); }));
      CHECK(!captured([&] { static_cast<void>(issue()); }));
      words = complaint([&] { static_cast<void>(issue()); });
      CHECK(words.find("all_reduce (captured_test.cpp:") == 0);
      CHECK(contains(words, "its handle was dropped"));
      // Assigned over; the graph is whole, as the second comes after the first.
      CHECK(captured([&] {
        auto o = issue();
        o = issue();
        std::move(o).join(compute);
      }));
      CHECK(contains(complaint([&] { issue().wait(); }), "dropped"));
      CHECK(captured([&] { issue().join(compute); }));
      world.barrier().wait();
      v[0] = 1;
      issue().wait();
      CHECK(v[0] == 2);
      CHECK(g.backend().failure().ok());
      world.barrier().wait();
    });
  }
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: one communicator in several captures, one after the other and at the same time") {
  for (const int polls : {0, 2}) {
    fake::machine machine;
    machine.polls_per_launch = polls;
    run_gpus(2, [&](gpus& g, auto& world) {
      fake_stream one{g.rank()}, two{g.rank()}, spoilt{g.rank()};
      std::vector<float> a(1), b(1), c(1);
      const auto doubled = [&](std::vector<float>& v, fake_stream& s) {
        return g.all_reduce(on_device(v), tutti::sum, {.stream = s});
      };
      machine.begin_capture(one.native());
      doubled(a, one).join(one);
      const auto first = machine.end_capture(one.native());
      machine.begin_capture(two.native());  // in another stream, after it
      doubled(b, two).join(two);
      const auto second = machine.end_capture(two.native());

      machine.begin_capture(spoilt.native());  // stays open for a while
      auto lost = doubled(c, spoilt);
      machine.begin_capture(one.native());
      auto mine = doubled(a, one);
      machine.begin_capture(two.native());
      doubled(b, two).join(two);
      std::move(mine).join(one);
      doubled(a, one).join(one);
      const auto fourth = machine.end_capture(two.native());  // begun after the third, ended before
      const auto third = machine.end_capture(one.native());
      REQUIRE((first && second && third && fourth));
      CHECK(first->nodes.size() == 1);
      CHECK(second->nodes.size() == 1);
      CHECK(third->nodes.size() == 2);
      CHECK(fourth->nodes.size() == 1);
      CHECK(contains(complaint([&] { lost.wait(); }), "join(stream)"));
      CHECK(!machine.end_capture(spoilt.native()));

      a[0] = b[0] = c[0] = 1;
      world.barrier().wait();
      machine.replay(first, one.native());
      machine.replay(second, two.native());
      machine.replay(third, two.native());
      machine.replay(fourth, one.native());
      doubled(c, one).wait();
      doubled(c, two).wait();
      CHECK(a[0] == 8);
      CHECK(b[0] == 4);
      CHECK(c[0] == 4);
      world.barrier().wait();
    });
    CHECK(machine.misuses == 0);
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("nccl: a communicator that graphs may hold is aborted, which waits for them, and not revoked") {
  for (const bool captures : {false, true}) {
    fake::machine machine;
    run_gpus(1, [&](gpus& g, auto&) {
      fake_stream compute{0};
      std::vector<float> v(1, 1);
      if (captures) machine.begin_capture(compute.native());
      g.all_reduce(on_device(v), tutti::sum, {.stream = compute}).join(compute);
      CHECK((!captures || machine.end_capture(compute.native())));
      g.abort();
    });
    const auto calls = machine.calls();
    CHECK(std::ranges::count(calls, std::string("ncclCommRevoke"), &fake::call::what) == (captures ? 0 : 1));
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("nccl: what a capture does not permit is refused at the issue, and spoils nothing") {
  fake::machine machine;
  run_gpus(1, [&](gpus& g, auto&) {
    fake_stream compute{0}, other{0}, idle{0};
    std::vector<float> v(1, 1);
    const auto issue = [&](tutti::stream_ref s) { return g.all_reduce(on_device(v), tutti::sum, {.stream = s}); };
    auto prepared = g.prepare().all_reduce(on_device(v));  // in the default stream
    machine.begin_capture(compute.native());
    CHECK(contains(complaint([&] { issue({}).wait(); }),
                   "all_reduce: a stream is being captured into a graph, and this"));
    CHECK(contains(complaint([&] { prepared.start().wait(); }), "pass the captured one"));
    issue(idle).wait();  // that one runs
    auto mine = issue(compute);
    std::vector<gpus::started<tutti::all_reduce_args>> running;
    {
      tutti::nccl_group together{g};
      running.push_back(issue(idle));
      CHECK(contains(complaint([&] { issue(compute).join(compute); }), "a group is one launch"));
    }
    running.clear();
    std::move(mine).join(compute);
    CHECK(machine.end_capture(compute.native()));
    CHECK(machine.misuses == 0);

    // What runs cannot be waited for in a graph, whether it is over or not.
    for (const bool over : {false, true}) {
      bool open = false;
      machine.launch(idle.native(), [&] { return open || over; });
      auto runs = issue(idle);
      while (over && !runs.done()) g.engine().poll();
      auto also = issue(compute);
      CHECK(runs.done() == over);
      machine.begin_capture(other.native());
      open = true;
      CHECK(
          contains(complaint([&] { std::move(runs).join(other); }), "is being captured into a graph, which it is no"));
      CHECK(contains(complaint([&] { issue(idle).join({}); }), "joined to the default stream"));
      machine.begin_capture(compute.native());
      auto written = issue(compute);
      CHECK(contains(complaint([&] { std::move(written).join(other); }), "with a stream of the same capture"));
      issue(compute).join(compute);
      CHECK(machine.end_capture(compute.native()));
      CHECK(machine.end_capture(other.native()));
      also.wait();
    }
    CHECK(machine.misuses == 0);
    CHECK(g.backend().failure().ok());

    // A capture that the user has spoilt, before and after the issue.
    machine.begin_capture(compute.native());
    auto late = issue(compute);
    CHECK(fake::cuda::query_stream(idle.native()) != tutti::cuda::result::success);
    CHECK(contains(complaint([&] { issue(compute).join(compute); }), "was spoilt by an earlier call"));
    CHECK(contains(complaint([&] { std::move(late).join(compute); }), "join(stream)"));
    CHECK(!machine.end_capture(compute.native()));
    CHECK(g.backend().failure().ok());
    issue(compute).wait();
    CHECK(fake::cuda::query_stream(idle.native()) == tutti::cuda::result::success);
  });
  CHECK(machine.left() == 0);
}

}  // namespace
