#pragma once
#include <chrono>

#include <tutti/core/deadline.hpp>
#include <tutti/store/store_limits.hpp>

namespace tutti {

/// The options of a file_store.
struct file_store_options {
  int world = 0;                                ///< number of ranks: the file is kept until all have left (0: unknown)
  duration timeout = std::chrono::seconds{30};  ///< of opening, and of every wait for the lock
  duration stale_after = std::chrono::seconds{2};  ///< time without change after which another machine's file is stale
  store_limits limits{};
};

}  // namespace tutti
