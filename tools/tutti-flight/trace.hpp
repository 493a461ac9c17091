#pragma once

#include <cstddef>
#include <string>

namespace tutti::flight_tool {

struct merged_trace {
  std::string path;
  std::size_t ranks = 0, size = 0;  ///< those that have a trace, and the world's; 0: not known
  std::size_t events = 0, arrows = 0;
  std::size_t left_out = 0;  ///< files of other worlds
};

/// Returns the sentences that say what was made.
std::string in_words(const merged_trace& made);

/// Writes the traces of a folder (trace_<rank>.json, trace_<rank>.world2.json) as one, FOLDER/trace.json, with the
/// clocks of all machines set to that of the first rank, and an arrow from the rank that came last in a collective to
/// those that had waited for it. Takes the world whose last event is the latest: a process may have joined several, and
/// earlier jobs may have left files. Throws std::runtime_error, which names the file at fault.
merged_trace merge_traces(const std::string& folder);

}  // namespace tutti::flight_tool
