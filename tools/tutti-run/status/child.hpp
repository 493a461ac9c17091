#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti-run/machines/remote_shell.hpp"
#include "tutti-run/poller.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {

/// A tutti-run --status that the launcher of a job starts, so that whatever happens to it happens to no job.
class status_child {
 public:
  struct words {
    std::string out, err;
  };

  status_child(const signal_state& signals, poller& events) : signals_(signals), events_(events) {}

  /// Starts it, with these arguments, unless one runs. Returns the reason if that fails, else nothing.
  std::string start(std::vector<std::string> arguments);
  /// Takes what it has printed, after an event of source::status. Returns all of it once it has ended.
  std::optional<words> read();

 private:
  const signal_state& signals_;
  poller& events_;
  piped_process process_;
  words said_;
};

}  // namespace tutti::launch
