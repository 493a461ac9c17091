#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device/feedback_hook.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <vector>

#include "grad/device/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

namespace {

using namespace device_ranks;
using ranks::expect;
using tutti::bfloat16;
using tutti::grad::device_compress_hook;
using tutti::grad::device_feedback_hook;
using tutti::grad::step;
using host = ranks::communicator;

template <class Wire>
using feedback = device_feedback_hook<Wire, remembering_kernels>;

/// How far the mean over many passes is from that of the gradients, which are the same in each.
template <class T, class Hook>
double drift(gpus& g, host& world, Hook hook, double size) {
  fake_stream s{g.rank()};
  constexpr std::size_t count = 33;
  constexpr int passes = 64;
  device_reducer reducer{g, world, shapes{{"a", count, tutti::dtype_of<T>()}, {"b", 5}}, {}, hook};
  std::vector<T> mine;
  std::vector<double> mean(count), received(count);
  const double ranks = g.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [&](int r) { return T(static_cast<float>(size * std::sin(static_cast<double>(i) + r))); };
    mine.push_back(of(g.rank()));
    for (int r = 0; r < g.size(); ++r) mean[i] += static_cast<double>(of(r)) / ranks;
  }
  for (int p = 0; p < passes; ++p) {
    auto pass = reducer.begin(3, s);
    write(s, reducer.template gradient<T>(0), mine);
    pass.ready(0);
    pass.ready(1);
    p % 2 == g.rank() % 2 ? pass.finish().join(s) : pass.finish().wait();
    const auto now = read(g, s, reducer.template gradient<T>(0));
    for (std::size_t i = 0; i < count; ++i) received[i] += static_cast<double>(now[i]) / passes;
  }
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) worst = std::max(worst, std::abs(received[i] - mean[i]));
  return worst / size;
}

template <class T, class Wire>
void check_drift(double unit, double size) {
  for (const int n : {1, 2}) {
    fake::machine machine;
    run_gpus(n, [&](gpus& g, host& world) {
      const double without = drift<T>(g, world, device_compress_hook<Wire, kernels>{.unit = unit}, size);
      const double with = drift<T>(g, world, feedback<Wire>{.unit = unit}, size);
      const double less = n == 1 ? 8 : 1;  // the sum over ranks rounds, too
      expect(with * less < without, std::to_string(with) + " is not much less than " + std::to_string(without));
    });
    CHECK(machine.misuses == 0);
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("device_feedback_hook: over many passes, what rounding left out arrives") {
  check_drift<float, bfloat16>(1, 1e-10);
  check_drift<double, bfloat16>(1, 1e10);
  check_drift<float, tutti::float16>(64, 1);
  check_drift<float, tutti::float8_e4m3>(16, 1);
  check_drift<bfloat16, tutti::float8_e5m2>(1024, 1);
}

TEST_CASE("device_feedback_hook: what is kept, what is forgotten, and that no NaN stays") {
  fake::machine machine;
  run_gpus(2, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    const tutti::grad::reducer_options small{.limits = {64, 64}};
    device_reducer reducer{g, world, shapes{{"a", 20}, {"b", 20}}, small, feedback<bfloat16>{}};
    constexpr float little = 0x1p-9F;  // next to 1, bfloat16 has none of it
    const auto pass_with = [&](float mine, double weight = 1, step how = step::apply) {
      auto pass = reducer.begin(weight, s);
      for (std::size_t i = 0; i < 2; ++i) write(s, reducer.gradient<float>(i), std::vector<float>(20, mine));
      pass.ready(1);  // its bucket has left when the other is skipped
      how == step::apply ? pass.ready(0) : pass.skip(how);
      expect(pass.finish().join(s) == how, "the step");
      return read(g, s, reducer.gradient<float>(1))[19];
    };
    const auto expect_next = [&](float wanted, const char* what) {
      const float got = pass_with(0);
      expect(got == wanted, std::string(what) + ": " + std::to_string(got));
      expect(pass_with(0) == 0, "and no more");
    };
    expect(pass_with(1 + little) == 1, "rounded");
    expect_next(little, "the rest comes with the next pass");

    (void)pass_with(1 + little);
    (void)pass_with(7, 1, step::skip_failure);
    expect_next(0, "what a skipped step would have sent");

    (void)pass_with(g.rank() == 0 ? std::numeric_limits<float>::infinity() : 1);
    expect_next(0, "an infinity");

    (void)pass_with(1 + little);
    expect(pass_with(3, g.rank()) == 3, "rank 0 counts for nothing, and the other's rest is small beside 3");
    expect_next((little + little) / 2, "both are sent with the next pass");

    (void)pass_with(1 + little);
    reducer.discard(s);
    expect_next(little, "discard() is about gradients");

    (void)pass_with(1 + little);
    auto pass = reducer.begin(1, s);
    for (const std::size_t i : {0u, 1u}) pass.ready(i);  // the other way round
    (void)pass.finish().join(s);
    expect(tutti::sync_wait(g, reducer.rebuild(s)), "a new plan");
    expect_next(0, "elements have moved");
  });
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("device_feedback_hook: needs kernels that remember, and says when one cannot be started") {
  static_assert(tutti::grad::feedback_kernels<remembering_kernels> && !tutti::grad::feedback_kernels<kernels>);
  static_assert(tutti::grad::device_hook<feedback<bfloat16>, gpus>);
  CHECK(feedback<bfloat16>::scratch_bytes({tutti::dtype::f32, 33, {}}) == 128 + 132);
  CHECK(feedback<bfloat16>::scratch_bytes({tutti::dtype::f16, 33, {}}) == 0);
  fake::machine machine;
  run_gpus(1, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    device_reducer reducer{g, world, shapes{{"a", 20}}, {}, feedback<bfloat16>{}};
    machine.fail("compress", {700});
    auto pass = reducer.begin(1, s);
    const auto how = ranks::outcome_of([&] { pass.ready(0); });
    expect(how.says("a kernel that compresses float32 to bfloat16 could not be started"), how.text);
  });
  CHECK(machine.left() == 0);
}

}  // namespace
