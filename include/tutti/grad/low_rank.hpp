#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti::grad {

/// A matrix in row-major order.
struct matrix_view {
  float* data = nullptr;
  std::size_t rows = 0, columns = 0;

  [[nodiscard]] std::span<float> row(std::size_t i) const noexcept { return {data + i * columns, columns}; }
  [[nodiscard]] std::size_t size() const noexcept { return rows * columns; }
};

namespace detail {

// Computes several sums at once, so that the compiler may use wide registers without reordering one of them.
inline float dot(std::span<const float> a, std::span<const float> b) noexcept {
  std::array<float, 16> sums{};
  std::size_t i = 0;
  for (; i + 16 <= a.size(); i += 16)
    for (std::size_t k = 0; k < 16; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  for (std::size_t width = 8; width > 0; width /= 2)
    for (std::size_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  return sums[0];
}

}  // namespace detail

/// Projects m on the rows of `q`: p.row(k) = m q.row(k).
inline void project(const matrix_view& m, const matrix_view& q, const matrix_view& p) noexcept {
  for (std::size_t k = 0; k < q.rows; ++k)
    for (std::size_t i = 0; i < m.rows; ++i) p.row(k)[i] = detail::dot(m.row(i), q.row(k));
}

/// Projects the transpose of m on the rows of `p`: q.row(k) = m^T p.row(k).
inline void project_back(const matrix_view& m, const matrix_view& p, const matrix_view& q) noexcept {
  std::fill_n(q.data, q.size(), 0.0f);
  for (std::size_t k = 0; k < p.rows; ++k)
    for (std::size_t i = 0; i < m.rows; ++i) {
      const float factor = p.row(k)[i];
      const auto from = m.row(i), to = q.row(k);
      for (std::size_t j = 0; j < m.columns; ++j) to[j] += factor * from[j];
    }
}

/// Computes row i of the matrix that p and q represent, the sum of p.row(k) q.row(k)^T.
inline void expand_row(const matrix_view& p, const matrix_view& q, std::size_t i, std::span<float> out) noexcept {
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t k = 0; k < p.rows; ++k) {
    const float factor = p.row(k)[i];
    const auto from = q.row(k);
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += factor * from[j];
  }
}

/// Makes the rows of `p` orthonormal, one after the other (Gram and Schmidt, applied twice against rounding). A row
/// that depends on those before it, such as a row of zeros, becomes zero; NaNs stay.
inline void orthonormalize(const matrix_view& p) noexcept {
  const auto scale = [](std::span<float> row, float by) {
    for (float& x : row) x *= by;
  };
  for (std::size_t k = 0; k < p.rows; ++k) {
    const auto row = p.row(k);
    // Scales to a magnitude of 1 first: squares then neither overflow nor vanish.
    float most = 0;
    for (const float x : row) most = (std::max)(most, x < 0 ? -x : x);
    if (most == 0) continue;
    for (float& x : row) x /= most;
    const float before = detail::dot(row, row);
    for (int twice = 0; twice < 2; ++twice)
      for (std::size_t j = 0; j < k; ++j) {
        const float along = detail::dot(row, p.row(j));
        for (std::size_t i = 0; i < row.size(); ++i) row[i] -= along * p.row(j)[i];
      }
    const float after = detail::dot(row, row);
    scale(row, after <= before * 1e-10f ? 0.0f : 1 / std::sqrt(after));
  }
}

}  // namespace tutti::grad
