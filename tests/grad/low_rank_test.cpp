#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <tutti/grad/low_rank.hpp>
#include <vector>

#include "grad/random_numbers.hpp"

namespace {
using tutti::grad::matrix_view;

std::vector<float> random_matrix(std::size_t rows, std::size_t columns, unsigned seed) {
  return random_numbers<float>(rows * columns, seed);
}
double exact_dot(std::span<const float> a, std::span<const float> b) {
  double d = 0;
  for (std::size_t i = 0; i < a.size(); ++i) d += static_cast<double>(a[i]) * b[i];
  return d;
}
}  // namespace

TEST_CASE("low rank: products are those of the definition") {
  for (const std::size_t columns : {std::size_t{1}, std::size_t{16}, std::size_t{33}}) {
    constexpr std::size_t rows = 7, rank = 3;
    auto m = random_matrix(rows, columns, 1), q = random_matrix(rank, columns, 2), p = std::vector<float>(rank * rows);
    const matrix_view M{m.data(), rows, columns}, Q{q.data(), rank, columns}, P{p.data(), rank, rows};
    project(M, Q, P);
    for (std::size_t k = 0; k < rank; ++k)
      for (std::size_t i = 0; i < rows; ++i)
        CHECK(P.row(k)[i] == doctest::Approx(exact_dot(M.row(i), Q.row(k))).epsilon(1e-5));
    auto back = std::vector<float>(rank * columns, 9.0f);
    const matrix_view B{back.data(), rank, columns};
    project_back(M, P, B);
    for (std::size_t k = 0; k < rank; ++k)
      for (std::size_t j = 0; j < columns; ++j) {
        double d = 0;
        for (std::size_t i = 0; i < rows; ++i) d += static_cast<double>(M.row(i)[j]) * P.row(k)[i];
        CHECK(B.row(k)[j] == doctest::Approx(d).epsilon(1e-4));
      }
    std::vector<float> row(columns, 9.0f);
    tutti::grad::expand_row(P, Q, 4, row);
    for (std::size_t j = 0; j < columns; ++j) {
      double d = 0;
      for (std::size_t k = 0; k < rank; ++k) d += static_cast<double>(P.row(k)[4]) * Q.row(k)[j];
      CHECK(row[j] == doctest::Approx(d).epsilon(1e-4));
    }
  }
}

TEST_CASE("low rank: rows become orthonormal, whatever their magnitude; what depends on others becomes zero") {
  for (const float magnitude : {1.0f, 1e30f, 1e-30f}) {
    auto p = random_matrix(5, 40, 3);
    for (float& x : p) x *= magnitude;
    const matrix_view P{p.data(), 5, 40};
    for (std::size_t i = 0; i < 40; ++i) P.row(2)[i] = P.row(0)[i] * 0.5f - P.row(1)[i];
    for (float& x : P.row(4)) x = 0;
    orthonormalize(P);
    for (std::size_t a = 0; a < 5; ++a)
      for (std::size_t b = 0; b <= a; ++b) {
        const bool gone = a == 2 || a == 4 || b == 2;
        const double expected = a == b && !gone ? 1 : 0;
        CHECK(std::abs(exact_dot(P.row(a), P.row(b)) - expected) < 1e-5);
      }
    for (const float x : P.row(2)) CHECK(x == 0);
  }
  std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN(), 2};
  tutti::grad::orthonormalize(matrix_view{bad.data(), 1, 3});
  for (const float x : bad) CHECK(std::isnan(x));
}
