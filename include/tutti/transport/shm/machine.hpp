#pragma once
#include <unistd.h>

#include <cstddef>
#include <string>
#include <utility>

#include <tutti/core/error.hpp>
#include <tutti/transport/rank_info.hpp>

namespace tutti::detail {

/// List of the ranks that share memory with one of them, in rank order; a local rank is a position in it.
struct shm_machine {
  roster ranks;
  int local_rank = -1;

  /// Selects the ranks from a roster. Throws usage_error if the roster does not describe this process.
  shm_machine(const roster& all, int rank) {
    const rank_info* me = nullptr;
    for (const rank_info& p : all)
      if (p.rank == rank) me = &p;
    if (me == nullptr) throw usage_error("rank " + std::to_string(rank) + " is not in its own roster");
    if (me->pid != ::getpid()) {
      throw usage_error("the roster says that this process is " + describe(*me) + ", but its pid is " +
                        std::to_string(::getpid()));
    }
    for (const rank_info& p : all) {
      if (p.memory_domain != me->memory_domain) continue;
      ranks.push_back(p);  // rosters are in order, or nearly
      for (std::size_t i = ranks.size() - 1; i > 0 && ranks[i - 1].rank > p.rank; --i)
        std::swap(ranks[i], ranks[i - 1]);
    }
    for (local_rank = 0; ranks[static_cast<std::size_t>(local_rank)].rank != rank;) ++local_rank;
  }
};

}  // namespace tutti::detail
