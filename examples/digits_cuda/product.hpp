#pragma once

#include <cstddef>

namespace digits::cuda {

/// The sizes of a matrix product: rows x inner times inner x columns.
struct product {
  std::size_t rows, columns, inner;
};

}  // namespace digits::cuda
