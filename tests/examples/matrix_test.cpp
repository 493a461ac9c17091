#include "common/matrix.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

namespace {

// Small integers: every order of summation gives the same bits.
template <class T>
std::vector<T> pattern(std::size_t count, int factor) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<int>(i) * factor % 11 - 5);
  return values;
}

template <class T>
void check_product(std::size_t rows, std::size_t depth, std::size_t width) {
  CAPTURE(rows);
  CAPTURE(depth);
  CAPTURE(width);
  const auto a = pattern<T>(rows * depth, 7);
  const auto b = pattern<T>(depth * width, 3);
  auto expected = pattern<T>(rows * width, 5);
  auto direct = expected;
  auto through_transpose = expected;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < width; ++j)
      for (std::size_t p = 0; p < depth; ++p) expected[i * width + j] += a[i * depth + p] * b[p * width + j];

  common::multiply_add(common::row_major(std::span{a}, rows, depth), std::span{b}, std::span{direct});
  CHECK(direct == expected);

  std::vector<T> turned(a.size());
  common::transpose(std::span{a}, rows, depth, std::span{turned});
  common::multiply_add(common::row_major(std::span<const T>{turned}, depth, rows).transposed(), std::span{b},
                       std::span{through_transpose});
  CHECK(through_transpose == expected);
}

}  // namespace

TEST_CASE_TEMPLATE("matrix: products of every shape around the tile's", T, float, double) {
  for (const std::size_t rows : {1u, 3u, 4u, 5u, 9u})
    for (const std::size_t depth : {1u, 2u, 13u})
      for (const std::size_t width : {1u, 3u, 4u, 7u, 8u, 10u, 17u}) check_product<T>(rows, depth, width);
}

TEST_CASE("matrix: nothing times something changes nothing") {
  std::vector<double> c{1, 2};
  const std::vector<double> none;
  common::multiply_add(common::row_major(std::span{none}, 2, 0), std::span{none}, std::span{c});
  CHECK(c == std::vector<double>{1, 2});
  common::multiply_add(common::row_major(std::span{none}, 0, 3), std::span<const double>{c}, std::span<double>{});
  CHECK(c == std::vector<double>{1, 2});
}
