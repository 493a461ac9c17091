#pragma once

#include <csignal>
#include <string>

namespace tutti::launch {

/// How signals stood when the program began, and which of them it now takes with sigwaitinfo.
struct signal_state {
  sigset_t mask_at_start;
  sigset_t taken;
};

/// Stands for the key by which a terminal sends SIGQUIT (Ctrl-\), where a number of a signal is passed on: it asks for
/// the status of the job. The same signal from a process ends the job.
inline constexpr int status_key = -1;

/// Blocks the signals that end, suspend or notify a job, except those that the caller had told us to ignore.
signal_state take_signals();

/// For a rank, before exec: the mask as it was at the start, and SIGPIPE and SIGCHLD with their default action.
void restore_signals(const signal_state& state) noexcept;

/// "SIGTERM", or "signal 40" for those without a name.
std::string signal_name(int number);

}  // namespace tutti::launch
