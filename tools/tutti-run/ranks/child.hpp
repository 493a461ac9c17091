#pragma once

#include <cstdint>

#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/rank_streams.hpp"

namespace tutti::launch {

struct inheritance;

struct child_ends {
  unique_fd gate;
  unique_fd breath;
  rank_streams::ends shown;
};

enum class child_stage : std::uint8_t { parent, streams, cpu, breath, files, program };
std::string_view name_of(child_stage stage) noexcept;

/// What a rank sends through its gate when it cannot become its program.
struct child_error {
  child_stage at;
  int error;
};

/// In the new process: waits at the gate, sets everything up and becomes the program.
[[noreturn]] void become_rank(const inheritance& inherited, int index, pid_t launcher, const child_ends& ends) noexcept;

}  // namespace tutti::launch
