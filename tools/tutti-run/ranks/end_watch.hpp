#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tutti-run/poller.hpp"
#include "tutti-run/ranks/spawn.hpp"
#include "tutti-run/report.hpp"

namespace tutti::launch {

/// Learns of the ends of ranks, in their order.
///
/// Both signs of an end, the last breath and the death, come from one epoll set of their own. It keeps the kernel's
/// order however late we look, and output cannot mix it up.
class end_watch {
 public:
  int fd() const noexcept { return events_.fd(); }
  void add(const rank_process& process, int rank);

  /// Records what has happened since the last call; returns how many ranks have died.
  int observe(std::vector<rank_process>& processes, std::vector<rank_end>& ends);

  /// Returns true if a rank is dead, but a debugger has not let go of it yet. Nothing tells when it does: call
  /// observe() again after a while.
  bool has_held() const noexcept { return !held_.empty(); }

  /// What comes after this is the launcher's doing.
  void begin_ending() noexcept { ending_from_ = seen_; }

 private:
  static void hear(const rank_process& process, rank_end& end) noexcept;
  bool record_death(rank_end& end) const noexcept;
  int take_held(std::vector<rank_end>& ends);

  poller events_;
  std::vector<int> held_;
  std::uint64_t seen_ = 0;
  std::uint64_t ending_from_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace tutti::launch
