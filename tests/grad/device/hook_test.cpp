#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <tutti/grad/device_reducer.hpp>
#include <vector>

#include "grad/device/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

namespace {

using namespace device_ranks;
using ranks::expect;
using tutti::bfloat16;
using tutti::nccl_dtype;
using tutti::nccl_reduction;
using tutti::grad::device_compress_hook;
using tutti::grad::device_sum_hook;
using host = ranks::communicator;

/// How buckets travelled since the last call, but for the flag: the type, and whether NCCL only added.
struct travelled {
  std::size_t of(nccl_dtype t) const { return static_cast<std::size_t>(type == static_cast<int>(t) ? count : 0); }
  int type = -1;
  std::size_t count = 0;
  bool summed = false;
};
travelled last_bucket(fake::machine& machine) {
  travelled t;
  for (const auto& c : machine.calls())
    if (c.what == "ncclAllReduce" && c.count > 1)
      t = {c.type, c.count, c.reduction == static_cast<int>(nccl_reduction::op_sum)};
  return t;
}

TEST_CASE("device_sum_hook: kernels multiply where NCCL would round the share of a narrow type, and only there") {
  for (const int n : {2, 3}) {
    for (const bool has_kernels : {false, true}) {
      for (const double more : {0.0, 1.0}) {  // of rank 0's weight
        fake::machine machine;
        run_gpus(n, [&](gpus& g, host& world) {
          fake_stream s{g.rank()};
          const shapes one{{"a", 32, dtype::bf16}};
          const auto check = [&](auto hook) {
            device_reducer reducer{g, world, one, {}, hook};
            auto pass = reducer.begin(g.rank() == 0 ? 1 + more : 1, s);
            write(s, reducer.template gradient<bfloat16>(0), std::vector<bfloat16>(32, bfloat16{1.0F}));
            pass.ready(0);
            (void)pass.finish().join(s);
            return static_cast<float>(read(g, s, reducer.template gradient<bfloat16>(0))[31]);
          };
          const float mean = has_kernels ? check(device_sum_hook<kernels>{}) : check(device_sum_hook{});
          expect(std::abs(mean - 1) <= 0x1p-7F, std::to_string(mean));
        });
        const bool even = n == 2 && more == 0;
        CHECK(last_bucket(machine).of(nccl_dtype::bf16) == 32);
        CHECK(last_bucket(machine).summed == (has_kernels && !even));
      }
    }
  }
}

template <class Wire>
void check_compressed(int n, nccl_dtype wire, double relative, double unit, double size) {
  fake::machine machine;
  run_gpus(n, [&](gpus& g, host& world) {
    fake_stream s{g.rank()};
    const shapes mixed{{"a", 70}, {"b", 70, dtype::f64}, {"c", 70, dtype::f16}};
    device_reducer reducer{g, world, mixed, {}, device_compress_hook<Wire, kernels>{.unit = unit}};
    double total = 0;
    for (int r = 0; r < n; ++r) total += r + 1;
    const auto value = [&](int rank, std::size_t e) { return size * (rank + 1) * std::sin(static_cast<double>(e)); };
    for (int round = 0; round < 2; ++round) {
      auto pass = reducer.begin(g.rank() + 1, s);
      std::vector<float> a(70);
      std::vector<double> b(70);
      for (std::size_t e = 0; e < 70; ++e) a[e] = static_cast<float>(b[e] = value(g.rank(), e));
      write(s, reducer.template gradient<float>(0), a);
      write(s, reducer.template gradient<double>(1), b);
      pass.ready(2);
      pass.ready(0);
      pass.ready(1);
      if ((round + g.rank()) % 2 == 0)
        (void)pass.finish().join(s);
      else
        (void)pass.finish().wait();
      const auto x = read(g, s, reducer.template gradient<float>(0));
      const auto y = read(g, s, reducer.template gradient<double>(1));
      for (std::size_t e = 0; e < 70; ++e) {
        double mean = 0, magnitude = 0;
        for (int r = 0; r < n; ++r) mean += value(r, e) * (r + 1) / total;
        for (int r = 0; r < n; ++r) magnitude += std::abs(value(r, e)) * (r + 1) / total;
        const double allowed = n * relative * magnitude + size * 1e-3;
        expect(std::abs(static_cast<double>(x[e]) - mean) <= allowed, "float " + std::to_string(x[e]));
        expect(std::abs(y[e] - mean) <= allowed, "double " + std::to_string(y[e]));
      }
      world.barrier().wait();
    }
  });
  std::size_t narrow = 0;
  for (const auto& c : machine.calls())
    narrow += c.what == "ncclAllReduce" && c.type == static_cast<int>(wire) && c.count == 80 - (c.count & 15);
  CHECK(narrow >= static_cast<std::size_t>(2 * 2 * n));
  CHECK(machine.misuses == 0);
  CHECK(machine.left() == 0);
}

TEST_CASE("device_compress_hook: gradients travel in the wire's type") {
  check_compressed<bfloat16>(3, nccl_dtype::bf16, 0x1p-7, 1, 1e-20);
  check_compressed<tutti::float16>(2, nccl_dtype::f16, 0x1p-10, 1, 10);
  check_compressed<tutti::float8_e5m2>(2, nccl_dtype::f8_e5m2, 0x1p-1, 0x1p20, 1e-6);
  check_compressed<tutti::float8_e4m3>(4, nccl_dtype::f8_e4m3, 0x1p-2, 0x1p-4, 1e2);
}

TEST_CASE("device_compress_hook: without kernels it does not compile, and says what is missing") {
  static_assert(tutti::grad::cast_kernels<kernels> && !tutti::grad::cast_kernels<tutti::grad::no_kernels>);
  static_assert(tutti::grad::device_hook<device_compress_hook<bfloat16, kernels>, gpus>);
  static_assert(tutti::grad::device_hook<device_sum_hook<>, gpus>);
}

}  // namespace
