#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

struct options {
  int ranks = 0;
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
