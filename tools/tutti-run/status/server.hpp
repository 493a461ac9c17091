#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/os/fd.hpp>

#include "tutti-run/poller.hpp"
#include "tutti-run/posix.hpp"
#include "tutti-run/status/recordings.hpp"

namespace tutti::launch {

/// Ranks of several machines, as their launchers answered.
struct machine_ranks {
  held_ranks ranks;
  std::vector<std::string> silent;  ///< machines that have not answered
};

/// Server of the status of a job on several machines: an abstract Unix socket, at which only processes of the same
/// user, and of root, are answered. Never blocks.
class status_server {
 public:
  /// Machines by index; the callback asks them all, and each answer comes back by take().
  using asker = std::function<void(std::int64_t round)>;

  /// Listens at a name that has this process's pid in it. Throws tutti::error.
  status_server(poller& events, std::vector<std::string> machines, asker ask);

  /// Accepts whoever waits at the socket.
  void accept();
  /// Takes the answer of a machine: the number of the round, and encode() of its ranks.
  void take(std::size_t machine, std::int64_t round, std::string_view ranks);
  /// Answers without the machines that are too slow. Returns when it must be called next.
  clock::time_point tick(clock::time_point now);

 private:
  void answer();

  std::vector<std::string> machines_;
  asker ask_;
  os::fd listener_;
  std::vector<os::fd> clients_;
  std::vector<std::optional<std::string>> answers_;
  std::int64_t round_ = 0;
  clock::time_point deadline_ = clock::time_point::max();
};

/// Returns the pids of the launchers on this machine that answer for several, as far as this user may look at them.
std::vector<pid_t> status_servers();

/// Asks one of them. Throws `failure`, which says why there is no answer.
machine_ranks ask_status_server(pid_t pid);

}  // namespace tutti::launch
