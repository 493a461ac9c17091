#pragma once

#include <sys/resource.h>

#include <string>
#include <vector>

#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/ranks/rank_streams.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {

struct options;

/// What every rank takes over from the launcher.
struct inheritance {
  const options& given;
  share part;
  const signal_state& signals;
  rlimit files;
  std::vector<std::string> environment;
  std::vector<std::vector<int>> cpus;  ///< rank r is bound to those of cpus[r % size]; empty: to none
  std::vector<std::string> devices;    ///< CUDA_VISIBLE_DEVICES of each rank; empty: as in `environment`
  int lifeline;                        ///< readable as soon as the start is to be given up
};

struct rank_process {
  pid_t pid = 0;
  unique_fd handle;  ///< pidfd: readable once the rank is dead
  unique_fd breath;  ///< hangs up as soon as the rank begins to die; may bring the rank that its world failed by
  unique_fd gate;    ///< holds the rank back; closed when its program runs
};

/// Makes a process for every rank, each in a process group of its own, and holds them all back. Throws `failure`.
std::vector<rank_process> fork_ranks(const inheritance& inherited, rank_streams& shown);

/// Lets the ranks run their program: rank 0 first and alone, so that a program that cannot be run is reported once and
/// no other rank begins. Throws `failure`, with ranks left over.
void open_gates(const inheritance& inherited, std::vector<rank_process>& ranks);

/// Takes a signal that has come while ranks were starting; throws `failure` if it ends the job.
void obey_while_starting(int lifeline);

/// What `inheritance::cpus` is for this way to bind, of the CPUs that this process may use.
std::vector<std::vector<int>> cpus_of_ranks(const options& given);

}  // namespace tutti::launch
