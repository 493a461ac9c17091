#pragma once
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/mismatch/other_length.hpp>
#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/group/cma.hpp>
#include <tutti/algo/shm/slot_parts.hpp>

namespace tutti::algo {

namespace detail {

/// Returns the descriptor of the input: `no_offset` in place, since a block may be overwritten before it has been read,
/// and 0 for an empty input, which no rank reads.
template <mapped_transport T>
std::uint64_t place_of_input(const shm_call<T>& call, const shm_group& shm, const all_to_all_args& a) noexcept {
  if (a.in.data == a.out.data) return shm_group::no_offset;
  if (a.in.bytes() == 0) return 0;
  const std::size_t longest = a.in_blocks.longest() * a.in.element_bytes;
  return place_or_cma_block(call, shm, a.in.data, a.in.bytes(), longest, a.out.bytes());
}

/// Copies `bytes` bytes from offset `begin` of rank r's input, which r has described with `step`. Returns 0, or an
/// errno as copy_from() does; EFAULT if the range is not memory of that rank.
template <mapped_transport T>
int take_from(const shm_call<T>& call, shm_group& shm, std::uint64_t step, const all_to_all_args& a, int r,
              std::size_t begin, std::byte* to, std::size_t bytes) {
  if (r == call.rank()) return copy_out(to, at(a.in.data, begin), bytes, a.out.bytes()), 0;
  const remote_buffer from = find(call, r, shm.descriptor_of(r, step).in + begin, bytes);
  return from ? copy_from(shm, to, from, bytes, a.out.bytes()) : EFAULT;
}

/// Copies this rank's block out of each rank's input; all inputs are described and have equal blocks. Each rank begins
/// with itself, so that not all read from the same rank at once.
template <mapped_transport T>
int take_blocks(const shm_call<T>& call, shm_group& shm, std::uint64_t step, const all_to_all_args& a) {
  const std::size_t bytes = a.in_blocks.size(0) * a.in.element_bytes,
                    mine = static_cast<std::size_t>(call.rank()) * bytes;
  int failed = 0;
  for (int i = 0; i < call.size() && failed == 0; ++i) {
    const int r = (call.rank() + i) % call.size();
    failed = take_from(call, shm, step, a, r, mine, at(a.out.data, static_cast<std::size_t>(r) * bytes), bytes);
  }
  return failed;
}

/// Layout of each rank's slot in an all_to_all, for the chunks of its blocks from byte `done` on. If the others do not
/// know the lengths of its blocks, a rank has described the longest one with its first chunks.
template <mapped_transport T>
class all_to_all_parts {
 public:
  all_to_all_parts(const shm_call<T>& call, const shm_group& shm, const all_to_all_args& a) noexcept
      : m_(call),
        b_(shm),
        own_(static_cast<std::size_t>(call.size()), static_cast<std::size_t>(call.rank()), a.in_blocks,
             a.in.element_bytes),
        known_(a.in_blocks.equal()) {}
  [[nodiscard]] const slot_parts& own() const noexcept { return own_; }
  [[nodiscard]] slot_parts of(int r, std::uint64_t step, std::size_t done) const noexcept {
    return known_ || r == m_.rank()
               ? own_
               : own_.cut_for(done == 0 ? b_.descriptor_of(r, step).longest : shm_group::slot_bytes);
  }

 private:
  const shm_call<T>& m_;
  const shm_group& b_;
  slot_parts own_;
  bool known_;
};

/// Copies the rest of the others' blocks after their first chunks, from inputs that all ranks have described with
/// `step`. Blocks have any lengths.
template <mapped_transport T>
int take_rests(const shm_call<T>& call, shm_group& shm, std::uint64_t step, const all_to_all_parts<T>& slots,
               const all_to_all_args& a) {
  const std::size_t element = a.in.element_bytes;
  int failed = 0;
  for (int i = 1; i < call.size() && failed == 0; ++i) {
    const int rank = (call.rank() + i) % call.size();
    const auto r = static_cast<std::size_t>(rank);
    const slot_parts parts = slots.of(rank, step, 0);
    const std::size_t first = parts.most(), bytes = a.out_blocks.size(r) * element;
    const std::size_t rest = chunk_size(bytes, first, bytes);
    if (rest == 0) continue;
    const std::uint64_t begin =
        parts.told_place(call.slot(rank, step, parts.total()), static_cast<std::size_t>(call.rank()));
    failed = take_from(call, shm, step, a, rank, begin + first, at(a.out.data, a.out_blocks.begin(r) * element + first),
                       rest);
  }
  return failed;
}

/// All-to-all through slots: each rank stages a chunk of each block, 1/n of a slot, and copies the chunks that are for
/// it. If lengths are told with the first chunks and all ranks map all inputs, the rest is copied from the inputs
/// directly.
template <mapped_transport T>
routine all_to_all_slots(group_link<T> link, shm_call<T> call, shm_group& shm, all_to_all_args a) {
  const auto n = static_cast<std::size_t>(call.size()), me = static_cast<std::size_t>(call.rank());
  const std::size_t element = a.in.element_bytes;
  const bool known = a.in_blocks.equal();
  const all_to_all_parts<T> slots{call, shm, a};
  const slot_parts& mine = slots.own();
  std::size_t longest = mine.longest();
  const auto take = [&](std::uint64_t step, std::size_t r, std::size_t done) noexcept {
    const std::size_t bytes = a.out_blocks.size(r) * element;
    const auto rank = static_cast<int>(r);
    if (r == me || done >= bytes) return;
    const slot_parts parts = slots.of(rank, step, done);
    copy_bytes(at(a.out.data, a.out_blocks.begin(r) * element + done),
               parts.of(call.slot(rank, step, parts.total()), r, me), chunk_size(bytes, done, mine.most()));
  };
  const auto take_own = [&] {
    copy_bytes(at(a.out.data, a.out_blocks.begin(me) * element), at(a.in.data, a.in_blocks.begin(me) * element),
               (std::min)(a.out_blocks.size(me), a.in_blocks.size(me)) * element);
  };
  shm_group::exposure_epoch shown{shm, link.link()};
  for (std::size_t done = 0; done == 0 || done < longest; done += mine.most()) {
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(mine.total());
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.in_blocks.size(r) * element, begin = a.in_blocks.begin(r) * element;
      if (done == 0) mine.tell(slot, r, bytes, begin);
      if (r != me && done < bytes)
        shm.stage(mine.of(slot, me, r), at(a.in.data, begin + done), chunk_size(bytes, done, mine.most()));
    }
    const bool learns = !known && done == 0;
    if (learns)
      call.post({place_of_input(call, shm, a), shm_group::no_offset, longest});
    else
      call.post();
    if (known && done == 0) take_own();  // while the others' chunks are on their way
    co_await call.wait_all(step);
    bool mapped = learns;
    for (std::size_t r = 0; r < n && learns; ++r) {
      const auto rank = static_cast<int>(r);
      longest = std::max<std::size_t>(longest, shm.descriptor_of(rank, step).longest);
      mapped = mapped && shm.descriptor_of(rank, step).in != shm_group::no_offset;
      const slot_parts parts = slots.of(rank, step, 0);
      const std::size_t room = a.out_blocks.size(r) * element;
      if (const auto told = parts.told(call.slot(rank, step, parts.total()), me); told != room)
        co_await link.refuse(other_length(link, a, rank, told, call.rank(), room));
    }
    if (learns) take_own();
    for (std::size_t r = 0; r < n; ++r) take(step, r, done);
    if (mapped && longest > mine.most()) {
      if (const int failed = take_rests(call, shm, step, slots, a)) co_await give_up(call, failed);
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
      shown.close();
      co_return;
    }
    if (learns) shown.close();
  }
  shown.close();
  if (!known && shm.choice_due(longest)) co_await choose_staging(call, shm);  // its length was not known before
}

}  // namespace detail

/// All-to-all through memory that the ranks share. If all ranks map the inputs or read them by cross-memory attach: two
/// rounds, every byte copied once; with equal blocks beyond 256 KiB of input, else for the part of each block beyond
/// its first chunk. Otherwise each rank stages 1/n of a slot of 256 KiB for each other rank: one round per such chunk
/// of the longest block, every byte copied twice.
template <mapped_transport T>
routine direct_all_to_all(group_link<T> link, shm_group& shm, all_to_all_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  if (a.in_blocks.equal() && shm.choice_due(a.in.bytes())) co_await detail::choose_staging(call, shm);
  if (a.in_blocks.equal() && a.in.bytes() > shm_group::slot_bytes) {
    shm_group::exposure_epoch shown{shm, link.link()};
    const std::uint64_t step = call.post({detail::place_of_input(call, shm, a), shm_group::no_offset});
    co_await call.wait_all(step);
    if (call.all_described(step)) {
      if (const int failed = detail::take_blocks(call, shm, step, a)) co_await detail::give_up(call, failed);
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
      shown.close();
      co_return;
    }
    shown.close();
  }
  co_await detail::all_to_all_slots(link, call, shm, a);
}

}  // namespace tutti::algo
