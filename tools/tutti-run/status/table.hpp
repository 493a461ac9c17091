#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "tutti-run/status/server.hpp"

namespace tutti::launch {

/// Lines and columns that a text may take.
struct table_limits {
  std::size_t lines = std::numeric_limits<std::size_t>::max();
  std::size_t columns = std::numeric_limits<std::size_t>::max();
};

/// Status of a job as a text.
struct shown_status {
  std::string text;
  bool stuck = false;  ///< a rank is, or the world has failed
};

/// Returns the verdict on a job, and a line for each rank; of more ranks than fit, those that matter.
shown_status status_table(const machine_ranks& job, const table_limits& limits);
/// Returns the same as JSON, in one line.
shown_status status_json(const machine_ranks& job);

}  // namespace tutti::launch
