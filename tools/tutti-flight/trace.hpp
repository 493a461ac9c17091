#pragma once

#include <cstddef>
#include <string>

namespace tutti::flight_tool {

struct merged_trace {
  std::string path;
  std::size_t ranks = 0, events = 0, arrows = 0;
};

/// Writes the traces of a folder (trace_<rank>.json) as one, FOLDER/trace.json, with the clocks of all machines set to
/// that of the first rank, and an arrow from the rank that came last in a collective to those that had waited for it.
/// Throws std::runtime_error.
merged_trace merge_traces(const std::string& folder);

}  // namespace tutti::flight_tool
