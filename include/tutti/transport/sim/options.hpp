#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// Whether simulated ranks exchange messages only, or also map each other's memory.
enum class sim_memory : std::uint8_t { separate, shared };

/// How a simulated rank is lost.
enum class sim_loss : std::uint8_t {
  killed,  ///< its peers hear of it after a while: errc::peer_lost
  silent   ///< it just stops; nobody is told: errc::timed_out
};

/// What became of a simulated world.
struct sim_record {
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;         ///< how often a rank was given the thread
  std::uint64_t trace = 0;         ///< digest of everything that happened, in order: equal when a run was replayed
  std::uint64_t lost_at = 0;       ///< the step at which the rank was lost; 0: it had ended, or nobody was to be lost
  std::uint64_t missed_wakes = 0;  ///< ranks that slept although there was something to do: 0 unless tutti has a bug
};

/// A simulated world; the seed decides all that is not said here.
struct sim_options {
  std::uint64_t seed = 1;
  sim_memory memory = sim_memory::separate;
  int lose_rank = -1;                          ///< this rank is lost; -1: none
  std::uint64_t lose_at_step = 1;              ///< when, unless it has ended by then
  sim_loss how = sim_loss::killed;             ///< and in which way
  duration timeout = std::chrono::minutes(5);  ///< of operations, in real time; a hang is noticed at once, without it
  std::size_t stack_bytes = std::size_t{512} << 10;  ///< of each rank
  sim_record* record = nullptr;                      ///< filled in when the run has ended, also by an exception
};

}  // namespace tutti
