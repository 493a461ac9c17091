#pragma once
#include <chrono>

#include <tutti/core/deadline.hpp>
#include <tutti/store/key_value_table.hpp>

namespace tutti {

/// How a file_store behaves.
struct file_store_options {
  int world = 0;                                   ///< how many take part; 0: unknown
  duration timeout = std::chrono::seconds{30};     ///< for opening, and for every wait for the lock
  duration stale_after = std::chrono::seconds{2};  ///< silence after which a file made on another machine is dead
  store_limits limits{};
};

}  // namespace tutti
