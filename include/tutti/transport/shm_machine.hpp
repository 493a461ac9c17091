#pragma once
#include <unistd.h>

#include <algorithm>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/transport/peer.hpp>

namespace tutti::detail {

/// The ranks that share memory with one of them, in rank order; a local rank is a position among them.
struct shm_machine {
  roster ranks;
  int local_rank = -1;

  /// Throws usage_error when the roster does not describe this process.
  shm_machine(const roster& all, int rank) {
    const auto is_me = [rank](const peer& p) { return p.rank == rank; };
    const auto me = std::find_if(all.begin(), all.end(), is_me);
    if (me == all.end()) throw usage_error("rank " + std::to_string(rank) + " is not in its own roster");
    if (me->pid != ::getpid()) {
      throw usage_error("the roster says that this process is " + describe(*me) + ", but its pid is " +
                        std::to_string(::getpid()));
    }
    for (const peer& p : all)
      if (p.memory_domain == me->memory_domain) ranks.push_back(p);
    std::sort(ranks.begin(), ranks.end(), [](const peer& a, const peer& b) { return a.rank < b.rank; });
    local_rank = static_cast<int>(std::find_if(ranks.begin(), ranks.end(), is_me) - ranks.begin());
  }
};

}  // namespace tutti::detail
