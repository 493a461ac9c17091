#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// Memory of simulated ranks: with `separate` they exchange messages only, with `shared` they also map each other's.
enum class sim_memory : std::uint8_t { separate, shared };

/// Way in which a simulated rank is lost.
enum class sim_loss : std::uint8_t {
  killed,  ///< its peers learn of it after a while: errc::peer_lost
  silent   ///< it stops, and no peer learns of it: errc::timed_out
};

/// Result of the run of a simulated world.
struct sim_record {
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;         ///< number of times that a rank was given the thread
  std::uint64_t trace = 0;         ///< digest of all events, in order: equal if a run was replayed
  std::uint64_t lost_at = 0;       ///< the step at which the rank was lost; 0: it had ended, or none was to be lost
  std::uint64_t missed_wakes = 0;  ///< ranks that slept although there was something to do: 0 unless tutti has a bug
};

/// Options of a simulated world; its seed decides all that is not set here.
struct sim_options {
  std::uint64_t seed = 1;
  sim_memory memory = sim_memory::separate;
  int lose_rank = -1;                          ///< this rank is lost; -1: none
  std::uint64_t lose_at_step = 1;              ///< the step at which it is lost, unless it has ended by then
  sim_loss how = sim_loss::killed;             ///< the way in which it is lost
  duration timeout = std::chrono::minutes(5);  ///< of operations, in real time; a hang is noticed at once, without it
  std::size_t stack_bytes = std::size_t{512} << 10;  ///< of each rank
  sim_record* record = nullptr;                      ///< filled in when the run has ended, even by an exception
};

}  // namespace tutti
