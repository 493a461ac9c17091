#pragma once
#include <exception>
#include <string>

#include <tutti/algo/mismatch/mismatch_report.hpp>
#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/core/log.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

/// Logs a difference between the last calls of ranks that share memory, as the shm group shows them now, when a
/// communicator ends on this rank and no operation has found it. Does nothing after close(), which has compared all
/// calls. Does not wait for calls that other ranks have yet to make.
inline void log_unnoticed(const shm_group& shm, const group& members) noexcept try {
  if (!shm.is_open() || shm.is_compared()) return;
  const auto found = mismatch_report::find(shm, members, -1);
  if (found.odd.rank < 0 || found.usual.rank < 0) return;
  call_signature odd = found.odd.what;
  odd.via = found.usual.what.via;
  if (odd == found.usual.what) return;
  tutti::detail::log(log_level::error,
                     "rank " + std::to_string(members.world_rank(members.rank)) +
                         " has ended a communicator without close(): " + detail::both_sides(found, members) +
                         "; all ranks must issue the same operations in the same order");
} catch (const std::exception&) {  // out of memory
}

}  // namespace tutti::algo
