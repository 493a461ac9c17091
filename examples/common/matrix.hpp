#pragma once

#include <cstddef>
#include <span>

namespace common {

/// A view of a matrix in memory that it does not own; a transpose is the same memory with the two strides swapped.
template <class T>
struct matrix_view {
  const T* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t row_stride;
  std::size_t column_stride;

  matrix_view transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// Returns a view of contiguous memory as rows x columns.
template <class T>
matrix_view<T> row_major(std::span<const T> values, std::size_t rows, std::size_t columns) {
  return {values.data(), rows, columns, columns, 1};
}

// The sums of one tile are a local array of constant size, so that the compiler keeps them in vector registers for the
// whole inner loop; g++ 12 does so only if its vectorizer sees the loop over columns before it is unrolled away. Each
// element is summed in order of `p` in every tile, so the result for an image does not depend on the other images of
// its batch.
template <std::size_t Rows, std::size_t Columns, class T>
inline void multiply_tile(matrix_view<T> a, std::size_t first_row, const T* b, T* c, std::size_t width) {
  T sums[Rows][Columns] = {};
  for (std::size_t p = 0; p < a.columns; ++p)
    for (std::size_t i = 0; i < Rows; ++i) {
      const T factor = a.data[(first_row + i) * a.row_stride + p * a.column_stride];
#pragma GCC unroll 2
      for (std::size_t j = 0; j < Columns; ++j) sums[i][j] += factor * b[p * width + j];
    }
  for (std::size_t i = 0; i < Rows; ++i)
    for (std::size_t j = 0; j < Columns; ++j) c[(first_row + i) * width + j] += sums[i][j];
}

template <std::size_t Columns, class T>
inline void multiply_columns(matrix_view<T> a, const T* b, T* c, std::size_t width) {
  std::size_t row = 0;
  for (; row + 4 <= a.rows; row += 4) multiply_tile<4, Columns>(a, row, b, c, width);
  for (; row < a.rows; ++row) multiply_tile<1, Columns>(a, row, b, c, width);
}

/// Adds the product a * b to c; b (a.columns x width) and c (a.rows x width) are contiguous, row by row.
template <class T>
void multiply_add(matrix_view<T> a, std::span<const T> b, std::span<T> c) {
  if (a.rows == 0 || a.columns == 0) return;
  constexpr std::size_t lanes = 32 / sizeof(T);
  const std::size_t width = c.size() / a.rows;
  std::size_t column = 0;
  for (; column + lanes <= width; column += lanes)
    multiply_columns<lanes>(a, b.data() + column, c.data() + column, width);
  for (; column < width; ++column) multiply_columns<1>(a, b.data() + column, c.data() + column, width);
}

/// Writes the transpose of a contiguous rows x columns matrix.
template <class T>
void transpose(std::span<const T> from, std::size_t rows, std::size_t columns, std::span<T> to) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

}  // namespace common
