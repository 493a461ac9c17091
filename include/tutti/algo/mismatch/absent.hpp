#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/mismatch/signature_text.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/last_call.hpp>

namespace tutti::algo {

/// Returns the words for the other ranks of a group that have not made a call, and for their last one, as the shm group
/// and their recordings show them now: "rank 3 has not called it: its last call, broadcast #41 (…), ended 30 s ago".
/// Returns an empty text if none is known. `describe` returns the description of a world rank, `recording_of` its
/// recording (std::optional<watch::flight>), where it can be read.
template <class Describe, class Recording>
std::string absent_text(const shm_group& shm, const group& members, std::uint64_t sequence, Describe describe,
                        Recording recording_of) {
  constexpr int most = 8;
  std::string text;
  int absent = 0;
  for (int r = 0; r < members.size; ++r) {
    if (r == members.rank) continue;  // this rank has made it, though the call may still wait for its turn
    std::optional<watch::flight> recorded;
    call_signature last{};
    if (shm.is_open()) {
      for (std::size_t i = 0; i < shm_group::remembered; ++i)
        if (const call_signature c = shm.recent(r, i); c.sequence > last.sequence) last = c;
      if (last.sequence >= sequence) continue;
    } else {
      recorded = recording_of(members.world_rank(r));
      if (!recorded || watch::last_collective(*recorded, members.context) >= sequence) continue;
    }
    if (++absent > most) continue;
    if (!recorded) recorded = recording_of(members.world_rank(r));
    text += (text.empty() ? "" : "; ") + describe(members.world_rank(r)) + ", has not called it: ";
    if (recorded)
      text += watch::last_call_text(*recorded);
    else
      text += last.sequence == 0 ? "it has made no call here" : "its last call here is " + algo::describe(last);
  }
  if (absent > most) text += "; and " + std::to_string(absent - most) + " more ranks have not";
  return text;
}

}  // namespace tutti::algo
