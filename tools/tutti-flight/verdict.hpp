#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-flight/load.hpp"
#include "tutti-flight/skew.hpp"

namespace tutti::flight_tool {

/// Position of a rank: in an operation, or in no call.
struct position {
  int rank = 0;
  bool recorded = true;
  bool waits = false;      ///< in an operation, or was when the world failed
  std::int64_t since = 0;  ///< nanoseconds that it has waited, or since its last operation ended; -1: not known
  const watch::flight::entry* at = nullptr;  ///< that operation, or the last one; null if there was none
  std::vector<int> waits_for;                ///< world ranks that have not called it, or the peer of a message
};

enum class finding {
  nothing,    ///< no rank waits for long
  missing,    ///< ranks wait for one that has not called the same
  mismatch,   ///< ranks called different things
  together,   ///< all ranks are in the same operation, and none is known to be at fault
  elsewhere,  ///< the known ranks wait for others of which nothing is known
  message,    ///< a rank waits for a message whose sender is not known, as of recv_any
  lost,       ///< a rank died, left, or aborted
};

struct verdict {
  finding what = finding::nothing;
  std::vector<int> suspected;  ///< world ranks; none where several could be
  std::vector<position> positions;
  bool failed = false;  ///< the world has failed
  errc failure = errc::ok;
  skew_report arrival;  ///< in collectives that all ranks have ended
};

/// Judges a world. Waits that are shorter than `patience` are taken for normal, unless the world has failed.
verdict judge(const recorded_world& w, std::chrono::nanoseconds patience);

/// Returns the world to be shown of those of one job, which may have several at a time, as for GPUs: the newest in
/// which a rank keeps others waiting, else the newest. `all` is not empty.
recorded_world choose_world(std::vector<recorded_world> all, std::chrono::nanoseconds patience);

/// Returns the state of a rank in one or two words: in call, own code, stopped, gone, left, failed, not here.
std::string_view state_of(const recorded_world& w, const verdict& v, const position& p);

/// Returns a call as "#42 broadcast eval.cpp:20", what it is of as " (1000 x float32)", and a time as "12 s".
std::string call_in_words(const watch::flight& f, const watch::flight::entry& e);
std::string details_in_words(const watch::flight::entry& e);
std::string time_in_words(std::int64_t nanoseconds);
/// Returns "rank 3", or "ranks 0 to 2, 5".
std::string ranks_in_words(const std::vector<int>& all);
/// Returns the first line of the verdict.
std::string headline(const verdict& v);

/// Returns the verdict in words, several lines.
std::string in_words(const recorded_world& w, const verdict& v);
std::string in_json(const recorded_world& w, const verdict& v);

}  // namespace tutti::flight_tool
