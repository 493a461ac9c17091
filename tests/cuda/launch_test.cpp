#include <cuda_runtime.h>  // support/fake_nvcc
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <support/kernels_on_host.hpp>
#include <tutti/backend/nccl/divide.hpp>
#include <tutti/cuda/kernels/kernels.cuh>
#include <tutti/grad/device/feedback_hook.hpp>
#include <tutti/train/update_rule.hpp>

// The kernels as they are launched, on a device that is none: which thread gets what, which blocks there are, and the
// sums that threads of a block make together.

namespace {

namespace cuda = tutti::cuda;
using tutti::bfloat16;

static_assert(tutti::dividing_kernels<cuda::kernels> && tutti::grad::feedback_kernels<cuda::kernels>);

template <class T>
cuda::device_span<T> span_of(std::vector<T>& v) {
  return {v.data(), v.size()};
}
std::vector<float> some(std::size_t count, std::uint64_t seed) {
  on_host::numbers n{seed};
  std::vector<float> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(n.ordinary());
  return v;
}
std::size_t launches() {
  const std::size_t n = fake_nvcc::launches.size();
  fake_nvcc::launches.clear();
  return n;
}

TEST_CASE("launch: a grid is as large as what it has to do, or as the device") {
  const tutti::stream_ref stream{reinterpret_cast<CUstream_st*>(64)};
  launches();
  for (const std::size_t n : {0u, 1u, 1024u, 1025u, 20000u}) {
    auto data = some(n, n), wanted = data;
    for (float& x : wanted) x /= 3;
    CHECK(cuda::kernels::divide(data.data(), n, tutti::dtype::f32, 3, stream.native()).ok());
    CHECK(data == wanted);
  }
  CHECK(fake_nvcc::launches.size() == 4);
  CHECK(fake_nvcc::launches[0].blocks == 1);
  CHECK(fake_nvcc::launches[1].blocks == 1);
  CHECK(fake_nvcc::launches[2].blocks == 2);
  CHECK(fake_nvcc::launches[3].blocks == 6);
  CHECK(fake_nvcc::launches[3].threads == 256);
  CHECK(fake_nvcc::launches[3].stream == stream.native());
  std::vector<bfloat16> narrow(5, bfloat16(3.0f));
  std::vector<double> wide(5);
  CHECK(cuda::kernels::cast(narrow.data(), tutti::dtype::bf16, wide.data(), tutti::dtype::f64, 5, 0.5, nullptr).ok());
  CHECK(wide == std::vector<double>(5, 1.5));
  CHECK(cuda::kernels::cast(nullptr, tutti::dtype::i8, nullptr, tutti::dtype::f32, 5, 1, nullptr).code ==
        tutti::errc::unsupported);
}

TEST_CASE("launch: gradients are measured to the bit, whichever warp runs first") {
  for (const bool last : {false, true}) {
    fake_nvcc::last_warp_first = last;
    std::vector<std::vector<float>> arrays;
    for (std::size_t i = 0; i < 6; ++i) arrays.push_back(some(i == 3 ? 30000 : i % 3, i));
    arrays[4].push_back(std::numeric_limits<float>::infinity());
    auto copies = arrays;
    std::vector<cuda::device_span<float>> gradients;
    std::vector<std::span<float>> parts;
    for (auto& a : arrays) gradients.push_back(span_of(a));
    for (auto& a : copies) parts.emplace_back(a);
    for (const double factor : {1.0, 0.25}) {
      if (factor != 1) arrays[4].back() = copies[4].back() = 2;
      std::vector<cuda::gradient_measure> workspace(cuda::unscale_workspace<float>(gradients)), found(1);
      launches();
      cuda::unscale<float>(gradients, factor, span_of(workspace), found.data(), nullptr);
      CHECK(launches() == 2);
      const auto wanted = on_host::unscale<float>(parts, factor);
      CHECK(found[0].squares == wanted.squares);
      CHECK(found[0].not_finite == (factor == 1 ? 1 : 0));
      CHECK(arrays == copies);
    }
  }
  fake_nvcc::last_warp_first = false;
}

TEST_CASE("launch: the tiles of more gradients than a table holds have measures of their own") {
  auto data = some(338, 1);
  std::vector<cuda::device_span<float>> gradients;
  double squares = 0;
  for (std::size_t i = 0; i < 169; ++i) gradients.push_back(span_of(data).subspan(2 * i, 2));
  for (const float x : data) squares += static_cast<double>(x) * static_cast<double>(x);
  std::vector<cuda::gradient_measure> workspace(cuda::unscale_workspace<float>(gradients)), found(1);
  CHECK(workspace.size() == 169);
  launches();
  cuda::unscale<float>(gradients, 1, span_of(workspace), found.data(), nullptr);
  CHECK(launches() == 3);
  CHECK(found[0].squares == doctest::Approx(squares));
}

TEST_CASE("launch: many tensors are packed in few launches") {
  auto data = some(3000, 2);
  const auto before = data;
  std::vector<cuda::tensor_slot> slots;
  for (std::size_t i = 0; i < 130; ++i) slots.push_back({data.data() + 20 * i, 4 * (i % 20), 80 * i + 4});
  slots.push_back({data.data() + 2600, 0, 0});
  std::vector<std::byte> packed(80 * 130, std::byte{1});
  launches();
  cuda::pack(slots, span_of(packed), nullptr);
  CHECK(launches() == 1);  // 123 are not empty
  CHECK(packed[0] == std::byte{1});
  for (const auto& s : slots) std::fill_n(static_cast<float*>(s.data), s.bytes / 4, 0.0f);
  CHECK(data != before);
  cuda::unpack(slots, span_of(packed), nullptr);
  CHECK(data == before);
  slots.push_back({data.data(), 8, packed.size() - 7});
  CHECK_THROWS_WITH_AS(cuda::pack(slots, span_of(packed), nullptr),
                       "pack: tensor 131 with 8 bytes at 10393 ends after the packed memory, which has 10400",
                       tutti::usage_error);
}

TEST_CASE("launch: a step goes by what the device has measured") {
  constexpr std::size_t n = 300;
  auto p = some(n, 3), g = some(n, 4);
  std::vector<float> m(n), v(n), wanted = p, memory(2 * n), halved = g;
  std::vector<bfloat16> narrow(n);
  std::vector<cuda::gradient_measure> measured{{1.0, 1}};
  const cuda::adamw_shard<bfloat16> shard{span_of(p), span_of(m), span_of(v), span_of(g), span_of(narrow)};
  const cuda::gradient_gate gate{.measured = measured.data(), .inverse_scale = 0.5};
  const tutti::train::adamw rule{};
  cuda::adamw(rule, 1, shard, nullptr, gate);
  CHECK(p == wanted);
  measured[0].not_finite = 0;
  cuda::adamw(rule, 1, shard, nullptr, gate);
  for (float& x : halved) x *= 0.5f;
  rule(std::span{wanted}, std::span<const float>{halved},
       std::array{std::span{memory}.first(n), std::span{memory}.last(n)}, 1);
  CHECK(p == wanted);
  CHECK(narrow[7].bits == bfloat16(wanted[7]).bits);
  CHECK_THROWS_AS(cuda::adamw(rule, 1, cuda::adamw_shard<bfloat16>{span_of(p)}, nullptr), tutti::usage_error);
}

TEST_CASE("launch: sums, and narrow floats with what they leave out") {
  auto a = some(99, 5), b = some(99, 6);
  std::vector<float> total(99), left(99), back(99);
  std::vector<bfloat16> wire(99);
  const std::array<cuda::device_span<const float>, 2> from{span_of(a), span_of(b)};
  cuda::sum_buffers<float>(from, span_of(total), nullptr);
  cuda::compress<bfloat16>(span_of(total), span_of(wire), nullptr, span_of(left), 4);
  cuda::decompress<bfloat16>(span_of(wire), span_of(back), nullptr, 4);
  int wrong = 0;
  for (std::size_t i = 0; i < 99; ++i) wrong += total[i] != a[i] + b[i] || back[i] + left[i] != total[i];
  CHECK(wrong == 0);
  std::vector<double> wide(99, 1 + 0x1p-9);
  std::fill(left.begin(), left.end(), 0.0f);
  for (const float sent : {3.0f, 3 + 0x1p-6f}) {  // in steps of 2^-6
    CHECK(cuda::kernels::compress(wide.data(), tutti::dtype::f64, left.data(), wire.data(), tutti::dtype::bf16, 99, 3,
                                  nullptr)
              .ok());
    CHECK(static_cast<float>(wire[98]) == sent);
  }
  CHECK(cuda::kernels::compress(wire.data(), tutti::dtype::bf16, left.data(), wide.data(), tutti::dtype::f16, 99, 1,
                                nullptr)
            .code == tutti::errc::unsupported);
}

TEST_CASE("launch: a launch that fails is told, with the device and the remedy") {
  std::vector<float> a(8);
  fake_nvcc::next = cudaErrorIllegalAddress;
  const tutti::status s = cuda::kernels::divide(a.data(), 8, tutti::dtype::f32, 2, nullptr);
  CHECK(s.code == tutti::errc::device);
  CHECK(s.detail == 700);
  fake_nvcc::next = cudaErrorIllegalAddress;
  try {
    cuda::compress<bfloat16>(span_of(a), cuda::device_span<bfloat16>{nullptr, 8}, nullptr);
    FAIL("a launch that failed");
  } catch (const tutti::error& e) {
    const std::string words = e.what();
    CHECK(words.find("the launch of tutti::cuda::compress failed on device 0: cudaErrorIllegalAddress (an illegal "
                     "memory access was encountered); ") == 0);
    CHECK(words.find("compute-sanitizer") != std::string::npos);
  }
}

}  // namespace
