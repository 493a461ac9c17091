#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/watch/flight.hpp>

namespace tutti::flight_tool {

/// State of the process of a rank, as the machine that asks knows it.
enum class process_state {
  unknown,  ///< of another machine
  runs,
  stopped,  ///< by a signal, or in a debugger
  gone,
};

/// Returns the meaning of a state that /proc shows.
process_state process_state_of(char state);

struct recorded_rank {
  watch::flight flight;
  process_state process = process_state::unknown;
};

/// Meaning of a rank without a recording.
enum class absence {
  fault,      ///< it was started without the folder, or died before it joined
  elsewhere,  ///< it may run on another machine, of which nothing is known
};

/// The recordings of one world, in the order of ranks. A rank without one is missing.
struct recorded_world {
  std::vector<recorded_rank> ranks;
  int size = 1;
  absence missing = absence::fault;
  std::int64_t now = 0;              ///< nanoseconds since 1970
  std::size_t others = 0;            ///< recordings of other worlds in the folder
  std::vector<std::string> refused;  ///< a sentence for each file that could not be used

  [[nodiscard]] const recorded_rank* find(int rank) const noexcept {
    for (const recorded_rank& r : ranks)
      if (r.flight.rank == rank) return &r;
    return nullptr;
  }
};

/// The folder holds nothing that can be judged; the message says why.
class no_recording : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Adds a rank to a world, which has none or such of the same size. Returns the reason if it does not belong there, as
/// the end of a sentence, else nothing.
std::string add_rank(recorded_world& to, recorded_rank rank);

/// Reads the recordings (rank_<rank>.ring) of the worlds of the folder's newest job, one or more. Throws no_recording.
std::vector<recorded_world> load(const std::string& folder);

}  // namespace tutti::flight_tool
