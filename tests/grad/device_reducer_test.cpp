#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <tutti/grad/reducer.hpp>
#include <utility>
#include <vector>

#include "grad/device/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

// The mean of gradients on devices, by the oracle of the host's reducer.

namespace {

using namespace device_ranks;
using ranks::expect;
using host = ranks::communicator;
using tutti::grad::contribution;
using tutti::grad::device_sum_hook;
using tutti::grad::reducer_options;
using tutti::grad::step;

TEST_CASE("device_reducer: the weighted mean, of random models on one to four devices, however a pass ends") {
  for (int n = 1; n <= 4; ++n) {
    for (const bool has_kernels : {false, true}) {
      fake::machine machine;
      machine.polls_per_launch = n % 2;
      run_gpus(n, [&](gpus& g, host& world) {
        fake_stream compute{g.rank()}, update{g.rank()};
        for (unsigned seed = 0; seed < 6; ++seed) {
          std::mt19937_64 random{static_cast<unsigned>(n) * 100 + seed};
          const auto round = rounds::random_round(random, n);
          const auto check = [&](auto hook) {
            device_reducer reducer{g, world, round.shapes, round.options, hook};
            for (int pass = 0; pass < 3; ++pass) {
              const auto image = run(round, g, reducer, compute, update, [&](auto completion) {
                step all{};
                if ((pass + g.rank()) % 3 == 0) all = std::move(completion).join(update);
                if ((pass + g.rank()) % 3 == 1) all = std::move(completion).wait();
                if ((pass + g.rank()) % 3 == 2) all = tutti::sync_wait(g, std::move(completion));
                expect(all == step::apply, "a step");
              });
              expect(rounds::complaint(round, image) == "", rounds::complaint(round, image));
              world.barrier().wait();
            }
          };
          has_kernels ? check(device_sum_hook<kernels>{}) : check(device_sum_hook{});
        }
      });
      CHECK(machine.misuses == 0);
      CHECK(machine.left() == 0);
    }
  }
}

TEST_CASE("device_reducer: the same bits as on the host, where nothing is rounded") {
  for (const int n : {1, 2, 4}) {
    fake::machine machine;
    run_gpus(n, [&](gpus& g, host& world) {
      fake_stream compute{g.rank()};
      std::mt19937_64 random{7};
      auto round = rounds::random_round(random, n);
      for (auto& shape : round.shapes) shape.count += 3;
      for (std::size_t rank = 0; rank < round.weights.size(); ++rank) {
        round.weights[rank] = n == 4 ? (rank < 2 ? 1 : 3) : 5;  // shares of powers of two, or nearly
        for (std::size_t i = 0; i < round.shapes.size(); ++i) {
          round.values[rank][i].resize(round.shapes[i].count);
          for (double& x : round.values[rank][i]) x = 8 * (static_cast<double>(random() % 17) - 8);
        }
      }
      round.what = contribution::mean;
      tutti::grad::reducer on_host{world, round.shapes, round.options};
      device_reducer device{g, world, round.shapes, round.options};
      const auto there = run(round, g, device, compute, compute, [&](auto l) { (void)std::move(l).join(compute); });
      expect(there == rounds::run(round, world, on_host), "the host's");
      expect(device.layout() == on_host.layout() && device.total_weight() == on_host.total_weight() &&
                 std::ranges::equal(device.ready_order(), on_host.ready_order()),
             "the host's plan");
    });
  }
}

TEST_CASE("device_reducer: the host goes through a whole step while the device has not begun it") {
  fake::machine machine;
  std::atomic<bool> open{false};
  run_gpus(4, [&](gpus& g, host& world) {
    fake_stream compute{g.rank()}, side{g.rank()}, update{g.rank()};
    device_reducer reducer{g, world, shapes{{"a", 40}, {"b", 7}, {"c", 30}}, reducer_options{.limits = {64, 64}}};
    float seen = 0;
    machine.launch(side.native(), [&] { return open.load(); });  // the backward pass, as long as it takes
    auto pass = reducer.begin(1, compute);
    write(compute, reducer.gradient<float>(2), std::vector<float>(30, 1));
    pass.ready(2);
    write(side, reducer.gradient<float>(1), std::vector<float>(7, 2));
    pass.ready(1, side);
    write(compute, reducer.gradient<float>(0), std::vector<float>(40, 3));
    pass.ready(0);
    const step all = pass.finish().join(update);
    in_stream(update, [&, b = reducer.gradient<float>(1)] { seen = b.data()[6]; });  // the optimizer
    expect(all == step::apply && seen == 0, "nothing has run yet");
    world.barrier().wait();
    open = true;
    expect(read(g, update, reducer.gradient<float>(0)) == std::vector<float>(40, 3), "a");
    expect(seen == 2, "b, before the optimizer: " + std::to_string(seen));
    world.barrier().wait();
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("device_reducer: a bucket waits for all streams that its marks name, in any order") {
  fake::machine machine;
  std::atomic<int> open{0};
  run_gpus(2, [&](gpus& g, host& world) {
    fake_stream one{g.rank()}, two{g.rank()}, update{g.rank()};
    device_reducer reducer{g, world, shapes{{"a", 3}, {"b", 3}, {"c", 3}, {"d", 3}}};
    for (int late = 0; late < 2; ++late) {
      machine.launch(late == 0 ? one.native() : two.native(), [&, late] { return open > late; });
      auto pass = reducer.begin(1, update);
      for (const std::size_t i : {2u, 0u, 3u, 1u}) {
        fake_stream& s = i % 2 == 0 ? one : two;
        write(s, reducer.gradient<float>(i),
              std::vector<float>(3, static_cast<float>(i) + static_cast<float>(g.rank())));
        pass.ready(i, s);
      }
      (void)pass.finish().join(update);
      world.barrier().wait();
      open = late + 1;
      for (std::size_t i = 0; i < 4; ++i)
        expect(read(g, update, reducer.gradient<float>(i))[2] == static_cast<float>(i) + 0.5F, "a gradient");
      in_stream(update, [&, a = reducer.gradients()] {
        for (const auto& v : a) std::fill(v.begin(), v.end(), -9.0F);
      });
      while (!update.done()) g.engine().poll();
      world.barrier().wait();
    }
  });
}

TEST_CASE("device_reducer: steady passes take no memory, no event and no stream more") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    device_reducer reducer{g, world, shapes{{"a", 40}, {"b", 40}, {"c", 40}}, reducer_options{.limits = {64, 64}}};
    const auto passes = [&](int n) {
      for (int i = 0; i < n; ++i) {
        (void)pass_of(reducer, s, 1);
        while (!s.done()) g.engine().poll();
      }
      world.barrier().wait();
    };
    passes(20);
    const std::size_t before = machine.left();
    world.barrier().wait();
    passes(50);
    expect(machine.left() <= before + 4, "what is left");
    world.barrier().wait();
    if (g.rank() != 0) return;
    std::size_t launches = 0, sums = 0;
    for (const auto& c : machine.calls()) launches += c.what == "launch", sums += c.what == "ncclAllReduce";
    expect(sums == 2 * 70 * 4 && launches == 2 * 70, "three buckets, and the flag in the last one's launch");
  });
}

TEST_CASE("device_reducer: what a kernel finds stays on the devices, and is known on all of them") {
  fake::machine machine;
  run_gpus(3, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    device_reducer reducer{g, world, shapes{{"a", 5, dtype::f64}, {"b", 5, dtype::bf16}, {"c", 5, dtype::f64}}};
    const auto flag_after = [&](bool here, bool accumulates, float value) {
      auto pass = accumulates ? reducer.begin(tutti::grad::accumulate, 1, s) : reducer.begin(1, s);
      write(s, reducer.gradient<double>(0), std::vector<double>(5, static_cast<double>(value)));
      if (here) write(s, reducer.found_inf(), {1});
      for (const std::size_t i : {1u, 0u, 2u}) pass.ready(i);
      expect(pass.finish().join(s) == step::apply, "the hosts do not know");
      return read(g, s, reducer.found_inf())[0];
    };
    expect(flag_after(g.rank() == 1, false, 1) != 0, "found");
    expect(flag_after(false, false, 1) == 0, "and forgotten");
    {
      fake_stream side{g.rank()};
      std::atomic<bool> open{false};
      auto pass = reducer.begin(1, s);
      pass.ready(1, side);
      pass.ready(2, side);
      machine.launch(s.native(), [&] { return open.load(); });
      if (g.rank() == 1) write(s, reducer.found_inf(), {1});
      pass.ready(0, side);
      (void)pass.finish().join(s);
      open = true;
      expect(read(g, s, reducer.found_inf())[0] != 0, "the flag is about the stream of begin()");
    }
    (void)flag_after(g.rank() == 2, true, 1);
    expect(flag_after(false, false, 1) != 0, "of a pass that accumulated");
    (void)flag_after(false, false, g.rank() == 0 ? std::numeric_limits<float>::infinity() : 1);
    expect(read(g, s, reducer.gradient<double>(0))[4] == std::numeric_limits<double>::infinity(), "and as is");
  });
}

TEST_CASE("device_reducer: ranks without samples, skips, and parameters that nobody uses") {
  fake::machine machine;
  run_gpus(3, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    const reducer_options tracked{.limits = {64, 64}, .unused = tutti::grad::unused_parameters::tracked};
    device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}, {"c", 20}}, tracked};
    const auto value = [&](std::size_t i) { return read(g, s, reducer.gradient<float>(i))[19]; };
    const float nan = std::numeric_limits<float>::quiet_NaN();

    expect(pass_of(reducer, s, g.rank() == 2 ? nan : 4.0F, g.rank() == 2 ? 0 : 1) == step::apply, "weights 1, 1 and 0");
    expect(value(0) == 4 && value(2) == 4 && reducer.total_weight() == 2, "no NaN of a rank that has no samples");
    (void)pass_of(reducer, s, nan, 0);
    expect(value(1) == 0 && reducer.total_weight() == 0, "nobody has samples");

    for (const step how : {step::skip_failure, step::skip_overflow, step::apply}) {
      auto pass = reducer.begin(1, s);
      for (std::size_t i = 0; i < 3; ++i) write(s, reducer.gradient<float>(i), std::vector<float>(20, 6));
      pass.ready(2);
      if (g.rank() == 1 && how != step::apply)
        pass.skip(how);
      else
        pass.ready(1), pass.ready(0);
      expect(pass.finish().join(s) == how, "all do the same");
      expect((read(g, s, reducer.found_inf())[0] != 0) == (how != step::apply), "and kernels learn it on the device");
    }
    expect(value(0) == 6, "after skips");

    auto pass = reducer.begin(1, s);
    write(s, reducer.gradient<float>(0), std::vector<float>(20, 9));
    write(s, reducer.gradient<float>(1), std::vector<float>(20, g.rank() == 0 ? 9.0F : nan));
    write(s, reducer.gradient<float>(2), std::vector<float>(20, static_cast<float>(g.rank() + 1)));
    if (g.rank() == 0) pass.ready(1);
    pass.ready(0);
    pass.rest_unused();
    g.rank() == 1 ? pass.finish().wait() : pass.finish().join(s);
    expect(value(0) == 9 && value(1) == 3, "used by all, and by one");
    expect(value(2) == static_cast<float>(g.rank() + 1) && !reducer.used(2) && reducer.used(1), "used by nobody");
  });
  CHECK(machine.left() == 0);
}

TEST_CASE("device_reducer: accumulated passes, delayed parameters, and buckets that are laid out anew") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    const reducer_options options{.limits = {64, 64}, .delayed = {1}};
    device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}, {"c", 20}}, options};
    const auto add = [&](float x) {
      in_stream(s, [all = reducer.gradients(), x] {
        for (const auto& v : all)
          for (float& e : v) e += x;
      });
    };
    const auto value = [&](std::size_t i) { return read(g, s, reducer.gradient<float>(i))[7]; };
    const auto whole = [&](double weight, float x) {
      auto pass = reducer.begin(weight, s);
      add(x);
      pass.ready(0);
      pass.ready(2);
      return tutti::sync_wait(g, pass.finish());
    };
    auto first = reducer.begin(tutti::grad::accumulate, 3, s);
    add(g.rank() == 0 ? 4 : 8);
    expect(first.finish().join(s) == step::apply, "nothing is known of others");
    (void)whole(1, 4);  // 8 with a weight of 4, and 12 with one of 4
    expect(value(0) == 10 && value(1) == 10 && value(2) == 10 && reducer.total_weight() == 8, "both passes");

    const auto before = reducer.gradient<float>(2).data();
    expect(tutti::sync_wait(g, reducer.rebuild(s)), "gradient 0 was ready first");
    expect(reducer.gradient<float>(2).data() != before && value(0) == 10 && value(1) == 10 && value(2) == 10, "moved");
    expect(!tutti::sync_wait(g, reducer.rebuild(s)), "nothing to do");
    reducer.discard(s);
    (void)whole(1, static_cast<float>(g.rank()));
    expect(value(0) == 0.5F && value(1) == 0.5F && value(2) == 0.5F, "in the new buckets");
  });
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
}

TEST_CASE("device_reducer: the plan follows the ready order, by itself") {
  fake::machine machine;
  run_gpus(3, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    const reducer_options options{.limits = {64, 64}, .replan = tutti::grad::replan::on_drift, .drift_passes = 2};
    device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}, {"c", 20}}, options};
    for (int n = 0; n < 6; ++n) {
      auto pass = reducer.begin(1, s);
      for (std::size_t i = 0; i < 3; ++i) {
        write(s, reducer.gradient<float>(i), std::vector<float>(20, static_cast<float>(g.rank()) * 3));
        pass.ready(i);
      }
      g.rank() == 1 ? pass.finish().join(s) : pass.finish().wait();
      for (std::size_t i = 0; i < 3; ++i)
        expect(std::abs(read(g, s, reducer.gradient<float>(i))[19] - 3) < 1e-5F, "moved along");
    }
    expect(reducer.replans() == 1 && reducer.layout().buckets[0].slots[0].parameter == 0, "one other plan");
  });
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
}

TEST_CASE("device_reducer: what cannot be is refused on all ranks, before anything is sent to a device") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, host& world) {
    const shapes two{{"a", 20}, {"b", 20}};
    const auto refused = [&](const reducer_options& o, const shapes& of, const char* part) {
      const auto how = ranks::outcome_of([&] { device_reducer reducer{g, world, of, o}; });
      expect(how.says(part), how.text);
    };
    refused({.order = tutti::grad::launch_order::ready}, two, "launch_order::planned");
    refused({.in_flight = 2}, two, "in_flight");
    refused({}, {{"a", 4, dtype::i32}}, "cannot be averaged");
    refused({.delayed = g.rank() == 0 ? std::vector<int>{7} : std::vector<int>{}}, two, "delayed");
    refused({}, {{"a", static_cast<std::size_t>(20 + g.rank())}}, "same model");

    fake_stream s{g.rank()};
    device_reducer reducer{g, world, two};
    const auto says = [&](const char* part, auto f) { expect(ranks::outcome_of(f).says(part), part); };
    machine.begin_capture(s.native());
    says("cannot be captured", [&] { (void)reducer.begin(1, s); });
    (void)machine.end_capture(s.native());
    says("asked for as", [&] { (void)reducer.gradient<double>(0); });
    auto pass = reducer.begin(1, s);
    says("during a pass", [&] { (void)reducer.begin(1, s); });
    says("during a pass", [&] { reducer.discard(s); });
    pass.ready(1);
    says("marked twice", [&] { pass.ready(1, s); });
    says("no parameter 2", [&] { pass.ready(2); });
    pass.ready(0);
    auto completion = pass.finish();
    says("during a pass", [&] { (void)reducer.begin(1, s); });
    says("it has ended", [&] { pass.ready(0); });
    (void)std::move(completion).join(s);
    expect(pass_of(reducer, s, 2) == step::apply, "the reducer goes on");
  });
}

}  // namespace
