#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/fold_chunk.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/core/args.hpp>

namespace tutti::algo::detail {

/// Place of one buffer of a list, for the ranks that map it.
struct list_place {
  std::uint64_t where, bytes;
};

/// Writes the places of the buffers of `list` to this rank's slot. Returns their number, or shm_group::no_offset if one
/// of them cannot be mapped, or if the slot is too small.
template <mapped_transport T>
std::uint64_t tell_places(const shm_call<T>& call, const buffer_list& list, std::byte* slot) noexcept {
  std::size_t told = 0;
  for (std::size_t i = 0; i < list.size; ++i) {
    const auto item = list[i];
    if (item.empty()) continue;
    const list_place p{call.place(item.data(), item.size()), item.size()};
    if (p.where == shm_group::no_offset || (told + 1) * sizeof p > shm_group::slot_bytes) return shm_group::no_offset;
    std::memcpy(slot + told++ * sizeof p, &p, sizeof p);
  }
  return told;
}

/// Cursor over the mapped buffers of another rank's list.
struct list_cursor {
  const std::byte *next, *end;  ///< the places of the buffers after the current one
  std::byte* at;
  std::size_t left;  ///< bytes left of the current buffer
};

/// Moves the cursor to the next buffer if the current one is used up. Returns false at the end of the list, or if a
/// place is not memory of that rank.
template <mapped_transport T>
bool find_bytes(list_cursor& c, const shm_call<T>& call, int rank) noexcept {
  if (c.left != 0) return true;
  if (c.next == c.end) return false;
  list_place p;
  std::memcpy(&p, c.next, sizeof p);
  c.next += sizeof p;
  c.at = call.map(rank, p.where, p.bytes);
  c.left = p.bytes;
  return c.at != nullptr && c.left != 0;
}

enum class list_fold { done, revoked, foreign };

/// Folds `count` elements, from `begin` on, of the lists that all ranks have described with `step`, and stores the
/// result to all of them. Nothing is staged. `cursors` has room for one per rank. Returns `foreign` if a rank's places
/// are not those of such a list, with that rank in `rank`; `revoked` if some rank failed meanwhile.
template <mapped_transport T>
list_fold fold_mapped_lists(const shm_call<T>& call, shm_group& shm, std::uint64_t step, std::size_t begin,
                            std::size_t count, std::size_t element, const reduction& with, list_cursor* cursors,
                            int& rank) {
  auto& room = shm.room();
  for (rank = 0; rank < call.size(); ++rank) {
    const std::byte* slot = call.slot(rank, step);
    const std::uint64_t told = shm.descriptor_of(rank, step).in;
    if (told > shm_group::slot_bytes / sizeof(list_place)) return list_fold::foreign;
    list_cursor c{slot, slot + told * sizeof(list_place), nullptr, 0};
    for (std::size_t skip = begin * element; skip != 0;) {
      if (!find_bytes(c, call, rank)) return list_fold::foreign;
      const std::size_t n = (std::min)(skip, c.left);
      c.at += n;
      c.left -= n;
      skip -= n;
    }
    cursors[rank] = c;
  }
  const shm_group::access_epoch access{shm};
  const std::size_t most = whole_elements(shm_group::access_bytes, element) * element;
  for (std::size_t left = count * element; left != 0;) {
    std::size_t chunk = (std::min)(left, most);
    room.operands.clear();
    room.results.clear();
    for (rank = 0; rank < call.size(); ++rank) {
      list_cursor& c = cursors[rank];
      if (!find_bytes(c, call, rank)) return list_fold::foreign;
      chunk = (std::min)(chunk, c.left);
      room.operands.push_back(c.at);
      room.results.push_back(c.at);
    }
    if (!access.permitted()) return list_fold::revoked;
    fold_chunk(shm, chunk / element, stores::ordinary, with);
    for (int r = 0; r < call.size(); ++r) {
      cursors[r].at += chunk;
      cursors[r].left -= chunk;
    }
    left -= chunk;
  }
  return list_fold::done;
}

}  // namespace tutti::algo::detail
