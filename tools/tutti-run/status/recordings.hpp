#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/os/ticks.hpp>
#include <tutti/watch/layout.hpp>

#include "tutti-flight/load.hpp"
#include "tutti-run/ranks/process_tree.hpp"

namespace tutti::launch {

/// Recording of a rank that runs, as its process held it at one moment.
struct held_recording {
  std::unique_ptr<watch::recording> memory;
  os::clock_reading read_at;  ///< by the clocks of its machine
  pid_t pid = 0;              ///< as the machine's /proc shows it; of a rank that is gone, as it had noted it
  flight_tool::process_state process = flight_tool::process_state::unknown;
  std::vector<pid_t> line;  ///< the process that holds it and those above it, as far as they are known here
  pid_t supervisor = 0;     ///< the first of them that is a tutti-run; 0: started otherwise
};

/// Rank of a tutti-run that has no recording: it has not joined a world yet.
struct waiting_rank {
  int rank = 0, size = 1;
  pid_t pid = 0;
  flight_tool::process_state process = flight_tool::process_state::unknown;
  std::string host;
  std::vector<pid_t> line;
  pid_t supervisor = 0;
};

struct held_ranks {
  std::vector<held_recording> recordings;
  std::vector<waiting_rank> waiting;
};

/// Reads what the processes of this machine hold, as far as the kernel lets this user read them: those of the same
/// user, all for root. Needs no help of the ranks.
held_ranks read_ranks(const process_table& table = {});

/// Writes all of it as bytes, from each recording its last operations, and reads them again, on another machine.
/// decode_ranks() throws `failure` if they are malformed.
std::string encode(const held_ranks& all);
void decode_ranks(std::string_view bytes, held_ranks& into);

/// Returns the worlds of these recordings, in no order.
std::vector<flight_tool::recorded_world> worlds_of(const std::vector<held_recording>& all);

}  // namespace tutti::launch
