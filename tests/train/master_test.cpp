#include <doctest/doctest.h>

#include <array>
#include <concepts>
#include <span>
#include <tutti/train/master.hpp>

namespace {
using namespace tutti::train;
using tutti::bfloat16;
using tutti::float16;
static_assert(std::same_as<master_t<float>, float> && std::same_as<master_t<double>, double>);
static_assert(std::same_as<master_t<float16>, float> && std::same_as<master_t<bfloat16>, float>);
static_assert(has_master<bfloat16> && has_master<float16> && !has_master<float> && !has_master<double>);
static_assert(!parameter_number<int> && !parameter_number<tutti::float8_e4m3>);

template <class T>
std::array<float, 4> there_and_back(const std::array<float, 4>& from) {
  std::array<T, 4> narrowed{};
  std::array<master_t<T>, 4> wide{};
  narrow<T>(std::array<master_t<T>, 4>{from[0], from[1], from[2], from[3]}, narrowed);
  widen<T>(narrowed, wide);
  return {static_cast<float>(wide[0]), static_cast<float>(wide[1]), static_cast<float>(wide[2]),
          static_cast<float>(wide[3])};
}
}  // namespace

TEST_CASE("master: rounded once to the nearest, and back as it is") {
  const std::array<float, 4> x{1, 256 + 0.75f, -1 - 0x1.8p-8f, 0x1p100f};
  CHECK(there_and_back<float>(x) == x);
  CHECK(there_and_back<double>(x) == x);
  CHECK(there_and_back<bfloat16>(x) == std::array<float, 4>{1, 256, -1 - 0x1p-7f, 0x1p100f});
  CHECK(there_and_back<float16>(x)[1] == 256.75f);
}
