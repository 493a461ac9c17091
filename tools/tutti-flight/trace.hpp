#pragma once

#include <cstddef>
#include <string>

namespace tutti::flight_tool {

struct merged_trace {
  std::string path;
  std::size_t ranks = 0, size = 0;  ///< those that have a trace, and the world's
  std::size_t events = 0, arrows = 0;
  std::size_t left_out = 0;  ///< files of other worlds
};

/// Writes the traces of a folder (trace_<rank>.json) as one, FOLDER/trace.json, with the clocks of all machines set to
/// that of the first rank, and an arrow from the rank that came last in a collective to those that had waited for it.
/// Takes the world that has written last: earlier jobs may have left files. Throws std::runtime_error.
merged_trace merge_traces(const std::string& folder);

}  // namespace tutti::flight_tool
