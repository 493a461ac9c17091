#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/mismatch/signature_text.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

/// Returns the words for the other ranks that have not made a call, and for their last one, as the shm group shows them
/// now: "rank 3 has not called it: its last call here is broadcast #41 (…)". Returns an empty text if none is known.
/// `describe` returns the description of a world rank.
template <class Describe>
std::string absent_text(const shm_group& shm, const group& members, std::uint64_t sequence, Describe describe) {
  constexpr int most = 8;
  std::string text;
  int absent = 0;
  for (int r = 0; shm.is_open() && r < members.size; ++r) {
    if (r == members.rank) continue;  // this rank has made it, though the call may still wait for its turn
    call_signature last{};
    for (std::size_t i = 0; i < shm_group::remembered; ++i)
      if (const call_signature c = shm.recent(r, i); c.sequence > last.sequence) last = c;
    if (last.sequence >= sequence || ++absent > most) continue;
    text += (text.empty() ? "" : "; ") + describe(members.world_rank(r)) + ", has not called it: " +
            (last.sequence == 0 ? "it has made no call here" : "its last call here is " + algo::describe(last));
  }
  if (absent > most) text += "; and " + std::to_string(absent - most) + " more ranks have not";
  return text;
}

}  // namespace tutti::algo
