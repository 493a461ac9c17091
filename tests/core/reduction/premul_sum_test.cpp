#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include <tutti/core/reduction.hpp>

#include "core/kernels/levels.hpp"

namespace {

using tutti::bfloat16;
using tutti::float16;
using tutti::reduction;
using tutti::reduction_for;

template <class F, class T>
constexpr bool can = reduction_for<decltype(tutti::premul_sum(F{})), T>;
static_assert(can<float, float> && can<double, float> && can<int, float> && can<float, float16> && can<double, double>);
static_assert(can<int, int> && can<int, std::uint8_t> && can<float, tutti::float8_e5m2> && can<double, long double>);
static_assert(can<float, std::complex<float>> && can<std::complex<float>, std::complex<float>>);
static_assert(!can<float, int> && !can<int, bool> && !can<std::complex<float>, float>);
static_assert(!can<std::complex<float>, std::complex<double>> && !can<float, std::byte>);

template <class T>
std::vector<T> prepared(const reduction& r, const std::vector<T>& in) {
  std::vector<T> apart(in.size()), in_place = in;
  r.prepare(in.data(), apart.data(), in.size(), r.context.data());
  r.prepare(in_place.data(), in_place.data(), in.size(), r.context.data());
  CHECK(apart == in_place);
  return apart;
}

TEST_CASE("premul_sum: is a sum of what each rank has scaled by its own factor") {
  const reduction half = tutti::erase_type<float>(tutti::premul_sum(0.5)),
                  twice = tutti::erase_type<float>(tutti::premul_sum(2));
  CHECK(half.kind == tutti::reduction_kind::premul_sum);
  CHECK(std::string_view{name(half.kind)} == "premul_sum");
  CHECK_FALSE(static_cast<bool>(half.finish));
  const auto a = prepared<float>(half, {2, 4, 6}), b = prepared<float>(twice, {1, 2, 3});
  CHECK(a == std::vector<float>{1, 2, 3});
  const void* const inputs[] = {a.data(), b.data()};
  std::vector<float> out(3);
  half.fold_all(inputs, 2, out.data(), 3, half.context.data());
  CHECK(out == std::vector<float>{3, 6, 9});
  half.fold(b.data(), out.data(), 3, half.context.data());
  CHECK(out == std::vector<float>{5, 10, 15});
  CHECK_FALSE(static_cast<bool>(tutti::erase_type<float>(tutti::sum).prepare));
}

TEST_CASE("premul_sum: integers wrap, complex numbers turn, narrow floats are multiplied in float") {
  CHECK(prepared<std::uint8_t>(tutti::erase_type<std::uint8_t>(tutti::premul_sum(3)), {100, 1}) ==
        std::vector<std::uint8_t>{44, 3});
  CHECK(prepared<int>(tutti::erase_type<int>(tutti::premul_sum(-2)), {7}) == std::vector<int>{-14});
  using complex = std::complex<double>;
  CHECK(prepared<complex>(tutti::erase_type<complex>(tutti::premul_sum(complex{0, 1})), {{1, 2}}) ==
        std::vector<complex>{{-2, 1}});
  CHECK(prepared<complex>(tutti::erase_type<complex>(tutti::premul_sum(2.0)), {{1, 2}}) ==
        std::vector<complex>{{2, 4}});
  const auto thirds =
      prepared<float16>(tutti::erase_type<float16>(tutti::premul_sum(1.0 / 3)), {float16(1), float16(3)});
  CHECK(thirds[0].bits == float16(static_cast<float>(1.0 / 3)).bits);
  CHECK(thirds[1].bits == float16(1).bits);
  CHECK(prepared<long double>(tutti::erase_type<long double>(tutti::premul_sum(2.0)), {1.5L}) ==
        std::vector<long double>{3.0L});
}

TEST_CASE_TEMPLATE("premul_sum: every instruction set scales as the scalar code does", T, float, double, float16,
                   bfloat16, tutti::float8_e4m3) {
  using C = tutti::detail::compute_t<T>;
  std::mt19937_64 g{4};
  for (const auto level : kernels::levels())
    for (std::size_t count = 0; count < 70; ++count) {
      const kernels::memory in(count * sizeof(T), count % 64), out(count * sizeof(T), count * 3 % 64);
      std::vector<T> wanted(count);
      for (std::size_t i = 0; i < count; ++i) {
        const T value = static_cast<T>(static_cast<C>(static_cast<double>(g() >> 11) * 0x1p-51 - 2.0));
        std::memcpy(in.data() + i * sizeof(T), &value, sizeof(T));
        wanted[i] = static_cast<T>(static_cast<C>(value) * static_cast<C>(0.7));
      }
      tutti::detail::scale<T>(in.data(), out.data(), count, static_cast<C>(0.7), level);
      CHECK((count == 0 || std::memcmp(out.data(), wanted.data(), count * sizeof(T)) == 0));
      CHECK(out.intact());
    }
}

}  // namespace
