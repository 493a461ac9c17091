#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <support/fakes/fake_numbers.hpp>
#include <support/gpus.hpp>
#include <tutti/backend/nccl/divide.hpp>

namespace {

using tutti::errc;

/// What a kernel in the stream would do.
struct fake_kernels {
  inline static bool fails = false;
  static tutti::status divide(void* data, std::size_t count, tutti::dtype t, double divisor,
                              tutti::cuda::stream_handle s) noexcept {
    auto& machine = fake::machine::here();
    if (fails) return {errc::device, 0, -1, 98};
    if (fake::current_device != s->device) ++machine.misuses;
    const std::scoped_lock guard{machine.mutex};
    const auto type = tutti::nccl_operand_of(t, tutti::reduction_kind::sum, 1, machine.version).type;
    machine.give(s, [=] {
      return [=] {
        for (std::size_t i = 0; i < count; ++i) fake::store(type, data, i, fake::load(type, data, i) / divisor);
        return true;
      };
    });
    return {};
  }
};
using dividing = tutti::nccl_divide<fake::nccl, fake_kernels>;
using dividing_gpus = tutti::communicator<tutti::basic_nccl<dividing>>;

template <class F>
void run_dividing(F f, int ranks = 3) {
  run_gpus<dividing>(ranks, f);
}
template <class T>
std::vector<float> floats(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}

TEST_CASE("nccl_divide: a mean of narrow floats is right for every number of ranks") {
  for (const int polls : {0, 2}) {
    fake::machine machine;
    machine.polls_per_launch = polls;
    run_dividing([](dividing_gpus& g, auto&) {
      const auto with = [&]<class T>(T) {
        const T mine{static_cast<float>(4 * g.rank())};  // 12 and 4 are numbers of all these types
        std::vector<T> v(3, mine), out(1), x(2, mine), y(1, mine);
        g.reduce_scatter(on_device(v), on_device(out), tutti::mean).wait();
        CHECK(floats(out) == std::vector<float>{4});
        g.all_reduce(on_device(v), tutti::mean).wait();
        CHECK(floats(v) == std::vector<float>(3, 4));
        const std::vector<std::span<T>> lists{std::span{x}, std::span{y}};
        g.all_reduce_coalesced(lists, tutti::mean).wait();
        CHECK(floats(x) == std::vector<float>(2, 4));
        CHECK(floats(y) == std::vector<float>(1, 4));
        std::vector<T> rooted(2, T{static_cast<float>(g.rank() + 3)});
        g.reduce(on_device(rooted), 1, tutti::mean).wait();
        CHECK(floats(rooted) == std::vector<float>(2, g.rank() == 1 ? 4.0F : static_cast<float>(g.rank() + 3)));
      };
      with(tutti::bfloat16{});
      with(tutti::float16{});
      with(tutti::float8_e5m2{});
      // Others are NCCL's.
      std::vector<float> whole(1, static_cast<float>(g.rank()));
      g.all_reduce(on_device(whole), tutti::mean).wait();
      CHECK(whole[0] == doctest::Approx(1));
    });
    CHECK(machine.misuses == 0);
    CHECK(machine.left() == 0);
  }
}

/// The mean of `value`, which all ranks have.
template <class T>
float mean_of(dividing_gpus& g, float value) {
  std::vector<T> v(1, T{value});
  g.all_reduce(on_device(v), tutti::mean).wait();
  return static_cast<float>(v[0]);
}

TEST_CASE("nccl_divide: operands so small that a part of each is none keep their mean") {
  for (const int ranks : {2, 3, 4}) {
    fake::machine machine;
    run_dividing(
        [](dividing_gpus& g, auto&) {
          for (const float i : {1.0F, 2.0F, 3.0F}) {  // of the smallest numbers there are, whose sums are exact
            CHECK(mean_of<tutti::float8_e4m3>(g, i * 0x1p-9F) == i * 0x1p-9F);
            if (g.size() == 3) CHECK(mean_of<tutti::float16>(g, i * 0x1p-24F) == i * 0x1p-24F);
          }
          CHECK(mean_of<tutti::float8_e5m2>(g, 0x1p-16F) == 0x1p-16F);
        },
        ranks);
  }
}

TEST_CASE("nccl_divide: a sum that has no room in 8 bits stays at the largest number, and none of 16 is made") {
  fake::machine machine;
  run_dividing(
      [](dividing_gpus& g, auto&) {
        CHECK(mean_of<tutti::float8_e4m3>(g, 112) == 112);
        CHECK(mean_of<tutti::float8_e4m3>(g, 256) == 112);  // 448 of 4 ranks
        CHECK(mean_of<tutti::float8_e5m2>(g, 57344) == 14336);
        CHECK(mean_of<tutti::float16>(g, 32768) == 32768);
        // At the other end NCCL's float16 loses of each what has no room in a quarter of it.
        CHECK(mean_of<tutti::float16>(g, 0x1p-12F + 0x1p-22F) == 0x1p-12F + 0x1p-22F);
        CHECK(mean_of<tutti::float16>(g, 0x1.8p-23F) == 0x1p-22F);
        CHECK(mean_of<tutti::float16>(g, 0x1p-23F) == 0);
      },
      4);
  run_dividing([](dividing_gpus& g, auto&) {
    CHECK(mean_of<tutti::float16>(g, 32768) == std::numeric_limits<float>::infinity());  // of 3, which are added first
  });
}

TEST_CASE("nccl_divide: the division is part of what streams are joined to, and of graphs") {
  fake::machine machine;
  run_dividing([&](dividing_gpus& g, auto&) {
    fake_stream compute{g.rank()};
    std::vector<tutti::bfloat16> v(1);
    machine.begin_capture(compute.native());
    machine.launch(compute.native(), [&] { return v[0] = tutti::bfloat16{static_cast<float>(3 * g.rank())}, true; });
    g.all_reduce(on_device(v), tutti::mean, {.stream = compute}).join(compute);
    const auto step = machine.end_capture(compute.native());
    REQUIRE(step);
    for (int i = 0; i < 2; ++i) {
      machine.replay(step, compute.native());
      g.barrier({.stream = compute}).wait();
      CHECK(floats(v) == std::vector<float>{3});
    }
  });
  CHECK(machine.misuses == 0);
}

TEST_CASE("nccl_divide: a kernel that cannot be launched is an error of the device") {
  fake::machine machine;
  fake_kernels::fails = true;
  run_dividing([&](dividing_gpus& g, auto&) {
    std::vector<tutti::bfloat16> v(1);
    errc kind{};
    const std::string words = words_of([&] { g.all_reduce(on_device(v), tutti::mean).wait(); }, kind);
    CHECK(kind == errc::device);
  });
  fake_kernels::fails = false;
  CHECK(machine.left() == 0);
}

}  // namespace
