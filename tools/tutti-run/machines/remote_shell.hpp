#pragma once

#include <string>
#include <vector>

#include "tutti-run/posix.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {

/// The program that runs a command on another machine, and what it is to run there.
struct remote_shell {
  std::vector<std::string> ssh;  ///< the program and its first arguments
  std::string launcher;          ///< tutti-run on the other machines
};

/// A program whose stdin, stdout and stderr are pipes of this process.
struct piped_process {
  pid_t pid = 0;
  unique_fd handle;  ///< pidfd
  unique_fd in;
  unique_fd out;
  unique_fd err;
};

/// Returns `{"ssh", "-p", "2222"}` of "ssh -p 2222"; words end at spaces.
std::vector<std::string> words_of(const std::string& text);

/// Returns the path of this program.
std::string own_path();

/// Returns the command line that starts an agent on `host`; without ssh where `here`.
std::vector<std::string> agent_command(const remote_shell& shell, const std::string& host, bool here);

/// Starts it; it is killed when this process dies. Throws `failure`.
piped_process start_piped(const std::vector<std::string>& command, const signal_state& signals);

}  // namespace tutti::launch
