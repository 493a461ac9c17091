#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-run/machines/machine_list.hpp"

namespace tutti::launch {

enum class output_mode {
  automatic,  ///< `plain` for a single rank on a terminal, else `prefix`
  prefix,     ///< every line is shown as "[rank] line"
  plain,      ///< ranks write to the launcher's stdout and stderr themselves
  rank0,      ///< rank 0 as in `plain`, nothing from the others
};

enum class binding {
  none,
  core,  ///< each rank to one CPU
  numa,  ///< each rank to a NUMA node
};

/// Machines of the ranks, if not all run on this one.
struct machine_options {
  std::vector<machine_slots> hosts;   ///< with a number of ranks each; empty: this machine
  std::string ssh = "ssh";            ///< a command and its first arguments
  std::string launcher;               ///< tutti-run on the other machines; empty: the path of this one
  std::string folder;                 ///< the working directory there; empty: that of this process
  std::vector<std::string> exported;  ///< names of variables that the ranks have from the environment of this process
  std::string master_address;         ///< at which rank 0 is reached; empty: found out
  int master_port = 0;                ///< 0: chosen
};

/// The place of this launcher among those of a job that is started once on each machine.
struct part_options {
  int machines = 1;
  int machine = 0;
  std::string rendezvous;  ///< URL
};

struct options {
  int ranks = 0;  ///< that this launcher starts, here and elsewhere
  machine_options machines;
  part_options part;
  output_mode output = output_mode::automatic;
  binding bind = binding::none;
  std::chrono::milliseconds settle{1000};
  std::chrono::milliseconds grace{5000};
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<std::string> environment;  ///< NAME=VALUE
  std::vector<std::string> devices;      ///< GPUs, one for each rank or more; empty: ranks see what is inherited
  std::vector<std::string> command;      ///< empty: only help was asked for
};

/// Reads the command line; throws `failure` with status 2 and one line that says what is wrong and what to write.
options parse_options(int argc, char** argv);

std::string_view help_text() noexcept;

}  // namespace tutti::launch
