#pragma once
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti {

/// The capacity of a store.
struct store_limits {
  std::size_t keys = 128 * 1024;
  std::size_t bytes = std::size_t{256} << 20;  ///< keys and values together
};

}  // namespace tutti
