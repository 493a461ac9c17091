#pragma once

#include <initializer_list>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

class output;
struct event;
struct job_summary;

/// The ranks of a job as the supervisor sees them: processes of this machine, or of several.
class job_ranks {
 public:
  virtual ~job_ranks() = default;

  /// Starts all ranks; their programs run when it returns. Throws `failure`, maybe with ranks left over.
  virtual void start(job_summary& job, output& shown) = 0;
  /// Takes one of the events that belong to the ranks.
  virtual void handle(const event& happened) = 0;
  /// Records the ends of ranks since the last call; returns how many there were.
  virtual int observe() = 0;
  /// Begins a new round of the supervisor's loop. Returns when the next one must come although nothing happens.
  virtual clock::time_point tick(clock::time_point now) = 0;
  /// The ranks that end from here on are ended by the launcher.
  virtual void begin_ending() = 0;
  /// Sends signals, one after the other, to the ranks and to all that they have started.
  virtual void signal_everything(std::initializer_list<int> signals) = 0;
  /// Sends a signal to the processes of the ranks alone.
  virtual void signal_ranks(int signal) = 0;
  /// Returns true if neither a rank nor anything that one has started is left.
  virtual bool gone() = 0;
};

}  // namespace tutti::launch
