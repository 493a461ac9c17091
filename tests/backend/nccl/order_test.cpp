#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <support/gpus.hpp>

namespace {

using namespace std::chrono_literals;

TEST_CASE("nccl: an operation comes after its stream's work, and what joins comes after the operation") {
  for (const int polls : {0, 2}) {
    fake::machine machine;
    machine.polls_per_launch = polls;
    std::atomic<bool> open{false};
    run_gpus(2, [&](gpus& g, auto& world) {
      fake_stream compute{g.rank()}, after{g.rank()};
      std::vector<float> v(4, 0);
      float seen = -1;
      machine.launch(compute.native(), [&] {  // a kernel that makes the gradients
        if (!open) return false;
        v.assign(4, 1);
        return true;
      });
      auto first = g.all_reduce(on_device(v), tutti::sum, {.stream = compute});
      auto second = g.all_reduce(on_device(v), tutti::sum, {.stream = compute});
      std::move(second).join(after);  // the host is back, though the kernel has not ended
      machine.launch(after.native(), [&] {
        seen = v[3];
        return true;
      });
      CHECK(!first.done());
      CHECK(seen == -1);
      world.barrier().wait();  // both ranks have looked
      open = true;
      first.wait();
      g.barrier({.stream = after}).wait();  // what was given to that stream comes before it, too
      CHECK(v[0] == 4);
      CHECK(seen == 4);
    });
    CHECK(machine.misuses == 0);
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("nccl: a loop that only joins holds no more events than what is under way, and seldom asks for them") {
  fake::machine machine;
  std::barrier both{2};  // nobody is far ahead, and nobody polls
  const auto began = std::chrono::steady_clock::now();
  run_gpus(2,
           [&](gpus& g, auto&) {
             fake_stream compute{g.rank()};
             std::vector<float> v(4, 0);
             for (int i = 0; i < 2000; ++i) {
               g.all_reduce(on_device(v), tutti::sum, {.stream = compute}).join(compute);
               if (i % 16 == 0) both.arrive_and_wait();
             }
             both.arrive_and_wait();
             CHECK(machine.left() < 600);  // two events for each operation
             both.arrive_and_wait();
           },
           {.calls = tutti::nccl_calls::blocking});
  CHECK(machine.left() == 0);
  // Of 4000 operations every eighth join asks, and each rank once in 64, and in steps of 1, 2, 4 … with each tick, of
  // which there is one a millisecond at most, however slow this machine is.
  const auto spent = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  CHECK(machine.questions <= 4000 / 8 + 4000 / 64 + 2 * 10 * (1 + spent.count()));
}

TEST_CASE("nccl: whoever waits for the last of many asks for few of them") {
  fake::machine machine;
  run_gpus(1, [&](gpus& g, auto&) {
    std::vector<std::vector<float>> all(60, std::vector<float>(1, 1));
    std::vector<decltype(g.all_reduce(on_device(all[0])))> under_way;
    for (auto& v : all) under_way.push_back(g.all_reduce(on_device(v)));
    machine.questions = 0;
    under_way.back().wait();
    CHECK(machine.questions <= 14);  // 1, 2, 4 … further on, once or twice
  });
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: a group inside another is a part of it") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, auto&) {
    std::vector<float> a(1, 1), b(1, 2), c(1, 3);
    auto running = [&] {
      const tutti::nccl_group outer{g};
      auto first = g.all_reduce(on_device(a));
      auto second = [&] {
        const tutti::nccl_group inner{g};
        return g.all_reduce(on_device(b));
      }();
      return std::tuple{std::move(first), std::move(second), g.all_reduce(on_device(c))};
    }();
    std::apply([](auto&... each) { (each.wait(), ...); }, running);
    CHECK(a[0] + b[0] + c[0] == 12);
  });
  std::vector<std::size_t> launches;
  for (const fake::call& c : machine.calls())
    if (c.what == "launch") launches.push_back(c.count);
  CHECK(launches == std::vector<std::size_t>{3, 3});
}

TEST_CASE("nccl: without a stream, an operation comes after the default stream of its own device") {
  fake::machine machine;
  std::atomic<bool> open{false};
  run_gpus(2, [&](gpus& g, auto& world) {
    std::vector<float> v(1, 0);
    fake::current_device = g.rank();
    machine.launch(tutti::cuda::default_stream(), [&] {
      const bool opened = open;
      if (opened) v[0] = 3;
      return opened;
    });
    fake::current_device = 3;  // whatever this thread does elsewhere
    auto running = g.all_reduce(on_device(v));
    CHECK(fake::current_device == 3);
    CHECK(!running.done());
    world.barrier().wait();
    open = true;
    running.wait();
    CHECK(v[0] == 6);
    auto again = g.all_reduce(on_device(v));
    std::move(again).join({});
    fake::current_device = g.rank();
    machine.launch(tutti::cuda::default_stream(), [&] { return v[0] = -v[0], true; });
    g.barrier().wait();
    CHECK(v[0] == -12);
  });
}

TEST_CASE("nccl: events are used again, and a joined operation needs no handle") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, auto& world) {
    fake_stream compute{g.rank()};
    std::vector<float> v(1, 1);
    const auto rounds = [&](int n) {
      for (int i = 0; i < n; ++i) {
        g.all_reduce(on_device(v), tutti::max, {.stream = compute}).wait();
        g.all_reduce(on_device(v), tutti::max, {.stream = compute}).join(compute);
      }
      g.barrier({.stream = compute}).wait();
      world.barrier().wait();
    };
    rounds(20);
    const std::size_t before = machine.left();
    rounds(100);
    CHECK(machine.left() <= before + 8);
    world.barrier().wait();
  });
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: alone, it calls NCCL with its own device current, whichever the caller's is") {
  fake::machine machine;
  tutti::nccl_options second;
  second.device = 1;
  const auto alone = [&](gpus& g, auto&) {
    std::vector<float> v(1, 3);
    g.all_reduce(on_device(v), tutti::mean).wait();
    auto grouped = [&] {
      const tutti::nccl_group together{g};
      return g.all_reduce(on_device(v));
    }();
    grouped.wait();
    CHECK(v[0] == 3);
    CHECK(fake::current_device == 0);
  };
  run_gpus(1, alone, second);
  CHECK(machine.misuses == 0);
}

TEST_CASE("nccl: the communicator's end waits for work that streams were joined to") {
  fake::machine machine;
  std::atomic<bool> open{false};
  std::atomic<int> destroying{0};
  std::vector<float> results(2, 0);
  std::jthread opener;
  run_gpus(2, [&](gpus& g, auto&) {
    fake_stream compute{g.rank()};
    float& mine = results[static_cast<std::size_t>(g.rank())];
    machine.launch(compute.native(), [&] {
      const bool opened = open;
      if (opened) mine = 2;
      return opened;
    });
    {
      gpus last = std::move(g);
      last.all_reduce(tutti::cuda::device_span<float>{&mine, 1}, tutti::sum, {.stream = compute}).join(compute);
      if (++destroying == 2) opener = std::jthread{[&] { open = true; }};
    }
    CHECK(mine == 4);
  });
  CHECK(machine.left() == 0);
}

}  // namespace
