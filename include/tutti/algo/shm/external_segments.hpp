#pragma once
#include <algorithm>
#include <cstddef>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/fold_chunk.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/kernels/copy.hpp>

/// Operands with external segments, whose data is not in the operand's buffer yet. An algorithm that reads an operand
/// needs it in the buffer. All external segments are copied there first, except those that this rank alone reads, which
/// it copies while it folds them.
namespace tutti::algo {

namespace detail {

/// Bytes from which an operand exceeds a core's caches. Streaming stores overwrite its lines without reading them
/// first.
inline constexpr std::size_t worth_passing_caches = std::size_t{4} << 20;

/// Bytes that are still in a core's first cache when they are used again.
inline constexpr std::size_t stays_near = std::size_t{16} << 10;

/// Bytes of a result that stay in a core's own cache.
inline constexpr std::size_t fits_a_core = std::size_t{512} << 10;

inline stores stores_for(std::size_t bytes) noexcept {
  return bytes >= worth_passing_caches ? stores::streaming : stores::ordinary;
}

/// Copies a range of one external segment to its place.
inline void bring_range(const external_segments& d, const std::byte* from, std::byte* to, std::size_t count,
                        std::size_t element, stores how) {
  if (count * element < shm_group::worth_streaming) how = stores::ordinary;
  if (!d.bring)
    return how == stores::streaming ? copy_streaming(to, from, count * element) : copy_bytes(to, from, count * element);
  if (how == stores::ordinary) return d.bring(from, to, count, d.factor);
  alignas(64) std::byte room[stays_near];
  const std::size_t most = sizeof room / element;
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t chunk = (std::min)(most, count - done);
    d.bring(from + done * element, room, chunk, d.factor);
    copy_streaming(to + done * element, room, chunk * element);
  }
}

/// Copies the external segments among the elements from `first` to `last` to their places in `buffer`, which begins
/// with element 0.
inline void bring(const external_segments& d, std::size_t first, std::size_t last, std::byte* buffer,
                  std::size_t element, stores how) {
  for (const external_segment* p = d.from(first); p != d.end() && p->first < last; ++p) {
    const std::size_t from = (std::max)(p->first, first), to = (std::min)(p->first + p->count, last);
    bring_range(d, at(p->data, (from - p->first) * element), buffer + from * element, to - from, element, how);
  }
}

/// Returns `count` contiguous elements from `first` on: a pointer to where they lie if they are contiguous there, else
/// to `room`, into which they are copied.
inline const std::byte* gathered(const external_segments& d, std::size_t first, std::size_t count,
                                 const std::byte* buffer, std::size_t element, std::byte* room) {
  const external_segment* p = d.from(first);
  const std::size_t last = first + count;
  if (p == d.end() || p->first >= last) return buffer + first * element;
  if (!d.bring && p->first <= first && p->first + p->count >= last) return at(p->data, (first - p->first) * element);
  std::size_t done = first;
  const auto from_buffer = [&](std::size_t to) {
    copy_bytes(room + (done - first) * element, buffer + done * element, (to - done) * element);
    done = to;
  };
  for (; p != d.end() && p->first < last; ++p) {
    if (p->first > done) from_buffer(p->first);
    const std::size_t to = (std::min)(p->first + p->count, last);
    bring_range(d, at(p->data, (done - p->first) * element), room + (done - first) * element, to - done, element,
                stores::ordinary);
    done = to;
  }
  from_buffer(last);
  return room;
}

inline blocks cut_of(const all_reduce_args& a, int ranks) noexcept {
  return {a.out.count, static_cast<std::size_t>(ranks)};
}

/// Copies the external segments in the part that rank `r` of `ranks` folds to their places.
inline void bring_part_of(const all_reduce_args& a, int r, int ranks) {
  if (a.external.empty()) return;
  const blocks cut = cut_of(a, ranks);
  const std::size_t first = cut.begin(static_cast<std::size_t>(r));
  bring(a.external, first, first + cut.size(static_cast<std::size_t>(r)), static_cast<std::byte*>(a.out.data),
        a.out.element_bytes, stores_for(a.out.bytes()));
}

/// Does what fold_mapped() does where this rank's input has external segments: folds `count` elements of all inputs in
/// `shm.room().in` from `begin` on, and stores them to all of `shm.room().results`, its own first. Returns false if
/// some rank failed meanwhile.
inline bool fold_external(shm_group& shm, const external_segments& d, std::size_t rank, std::size_t begin,
                          std::size_t count, std::size_t element, stores how, const reduction& with) {
  auto& [operands, results, in, out] = shm.room();
  alignas(64) std::byte room[stays_near];
  operands.clear();
  for (const std::byte* p : in) operands.push_back(p + begin * element);
  // The others' results overwrite operands, which are in the cache. The own result is not in the cache: it is copied
  // from the first of the others by streaming stores.
  std::byte* own = nullptr;
  if (how == stores::streaming) {
    own = static_cast<std::byte*>(results.front());
    results.front() = results.back();
    results.pop_back();
  }
  // A longer own result lies in a shared cache, from which it comes as fast as the others'.
  const stores ways = !own && count * element <= fits_a_core ? stores::own_first : stores::ordinary;
  const std::size_t most = (d.empty() ? shm_group::access_bytes : sizeof room) / element;
  const shm_group::access_epoch access{shm};
  for (std::size_t done = 0; done < count; done += most) {
    if (!access.permitted()) return false;
    const std::size_t chunk = (std::min)(most, count - done);
    operands[rank] = gathered(d, begin + done, chunk, in[rank], element, room);
    fold_chunk(shm, chunk, ways, with);
    if (own) copy_streaming(own + done * element, results.front(), chunk * element);
    for (const void*& p : operands) p = at(p, chunk * element);
    for (void*& p : results) p = at(p, chunk * element);
  }
  return true;
}

}  // namespace detail

/// Copies the external segments that other ranks will read to their places; this rank's own part is left out.
inline void bring_for_others(const all_reduce_args& a, int rank, int ranks) {
  for (int r = 0; r < ranks; ++r)
    if (r != rank) detail::bring_part_of(a, r, ranks);
}

}  // namespace tutti::algo
