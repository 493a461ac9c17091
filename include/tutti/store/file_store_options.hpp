#pragma once
#include <chrono>

#include <tutti/core/deadline.hpp>
#include <tutti/store/store_limits.hpp>

namespace tutti {

/// The options of a file_store.
struct file_store_options {
  int world = 0;                                   ///< how many take part; 0: unknown
  duration timeout = std::chrono::seconds{30};     ///< for opening, and for every wait for the lock
  duration stale_after = std::chrono::seconds{2};  ///< silence after which a file made on another machine is dead
  store_limits limits{};
};

}  // namespace tutti
