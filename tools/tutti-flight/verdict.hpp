#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti-flight/load.hpp"

namespace tutti::flight_tool {

/// Position of a rank: in an operation, or in no call.
struct position {
  int rank = 0;
  bool recorded = true;
  bool waits = false;      ///< in an operation, or was when the world failed
  std::int64_t since = 0;  ///< nanoseconds that it has waited, or since its last operation ended; -1: not known
  const watch::flight::entry* at = nullptr;  ///< that operation, or the last one; null if there was none
};

enum class finding {
  nothing,   ///< no rank waits for long
  missing,   ///< ranks wait for one that has not called the same
  mismatch,  ///< ranks called different things
  together,  ///< all ranks are in the same operation, and none is known to be at fault
  lost,      ///< a rank died, left, or aborted
};

struct verdict {
  finding what = finding::nothing;
  std::vector<int> culprits;  ///< world ranks; none where several could be
  std::vector<position> positions;
  bool failed = false;  ///< the world has failed
  errc failure = errc::ok;
  // Arrival in collectives that all ranks have ended.
  int late_rank = -1;        ///< the rank that is the last most often; -1: none stands out
  double late_share = 0;     ///< of the collectives, in which it is
  double late_seconds = 0;   ///< after the one before it, on average
  std::size_t compared = 0;  ///< collectives
};

/// Judges a world. Waits that are shorter than `patience` are taken for normal, unless the world has failed.
verdict judge(const recorded_world& w, std::chrono::nanoseconds patience);

/// Returns the verdict in words, several lines.
std::string in_words(const recorded_world& w, const verdict& v);
std::string in_json(const recorded_world& w, const verdict& v);

}  // namespace tutti::flight_tool
