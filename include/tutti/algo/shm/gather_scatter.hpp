#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/mismatch/other_length.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/group/mapped_move.hpp>
#include <tutti/algo/shm/group/staging.hpp>
#include <tutti/algo/shm/slot_parts.hpp>

namespace tutti::algo {

namespace detail {

/// Returns the range of rank r's block in the root's buffer.
template <class Args>
byte_range block_of(const Args& a, std::size_t element, int r) noexcept {
  const auto i = static_cast<std::size_t>(r);
  return {a.blocks.begin(i) * element, a.blocks.size(i) * element};
}

/// Returns the place at which rank r stages the chunks of its block of a gather, which has `bytes` bytes.
template <mapped_transport T>
const std::byte* staged_block(const shm_call<T>& call, int r, std::uint64_t step, std::size_t bytes) noexcept {
  return call.slot(r, step, (std::min)(bytes, shm_group::slot_bytes));
}
/// Returns the layout of the root's first slot in a gather: a table of the blocks, which the others need in order to
/// store into the root's buffer when the root alone knows the lengths.
inline slot_parts gather_table(int ranks) noexcept {
  return slot_parts::with_table(static_cast<std::size_t>(ranks), 0);
}

/// Runs direct_gather() on the root: takes the first slot of every rank, then the rest from where it is, or by slots.
template <mapped_transport T>
routine gather_at_root(group_link<T> link, shm_call<T> call, shm_group& shm, gather_args a) {
  const bool known = a.blocks.equal();
  const auto block = [&a](int r) noexcept { return block_of(a, a.in.element_bytes, r); };
  const auto take = [&](std::uint64_t step, std::size_t done) noexcept {
    for (int r = 0; r < call.size(); ++r) {
      const auto [offset, bytes] = block(r);
      if (r != a.root && done < bytes)
        copy_bytes(at(a.out.data, offset + done), staged_block(call, r, step, bytes),
                   chunk_size(bytes, done, shm_group::slot_bytes));
    }
  };
  std::size_t longest = known ? a.in.bytes() : 0;
  std::byte* const own = at(a.out.data, block(a.root).offset);
  shm_group::exposure_epoch shown{shm, link.link()};
  std::uint64_t step = call.next();
  if (!known || longest > shm_group::slot_bytes) {
    const shm_group::buffer_descriptor here{place_or_cma(call, a.out.data, a.out.bytes(), shm.cma().whole),
                                            own == a.in.data ? takes_share : shm_group::no_offset};
    if (!known) co_await call.wait_all(step - 1);
    const slot_parts places = gather_table(call.size());
    for (int r = 0; r < call.size() && !known && here.in != shm_group::no_offset; ++r)
      places.tell(call.own_slot(places.total()), static_cast<std::size_t>(r), block(r).bytes, block(r).offset);
    call.post(here);
  } else {
    call.post();
  }
  copy_bytes(own, a.in.data, a.in.bytes());
  co_await call.wait_all(step);
  for (int r = 0; r < call.size() && !known; ++r) {
    if (r == a.root) continue;
    const std::uint64_t told = shm.descriptor_of(r, step).longest;
    if (told != block(r).bytes) co_await link.refuse(other_length(link, a, r, told, a.root, block(r).bytes));
    longest = std::max<std::size_t>(longest, told);
  }
  take(step, 0);
  if (longest > shm_group::slot_bytes && shm.descriptor_of(a.root, step).in != shm_group::no_offset) {
    co_await move_mapped(link, call, shm, a.root, step, flow::to_root, at(a.out.data, 0), [=](int r) {
      const auto [offset, bytes] = block_of(a, a.in.element_bytes, r);
      return byte_range{offset + shm_group::slot_bytes, chunk_size(bytes, shm_group::slot_bytes, bytes)};
    });
    longest = 0;
  }
  shown.close();
  for (std::size_t done = shm_group::slot_bytes; done < longest; done += shm_group::slot_bytes) {
    step = call.next();
    call.post();
    co_await call.wait_all(step);
    take(step, done);
  }
  if (!known && shm.choice_due(longest)) co_await choose_staging(call, shm);  // its length was not known before
}

/// Runs direct_gather() on every other rank: stages the first slot, then stores the rest into the root's buffer, or
/// stages it.
template <mapped_transport T>
routine gather_at_rank(group_link<T> link, shm_call<T> call, shm_group& shm, gather_args a) {
  const bool known = a.blocks.equal();
  const auto me = static_cast<std::size_t>(call.rank());
  const std::size_t mine = a.in.bytes(), rest = chunk_size(mine, shm_group::slot_bytes, mine);
  const auto stage = [&](std::size_t done) noexcept {
    shm.stage(call.own_slot((std::min)(mine, shm_group::slot_bytes)), at(a.in.data, (std::min)(done, mine)),
              chunk_size(mine, done, shm_group::slot_bytes));
  };
  std::size_t longest = mine;
  shm_group::exposure_epoch shown{shm, link.link()};
  std::uint64_t step = call.next();
  co_await call.wait_all(step - 1);
  stage(0);
  if (!known || longest > shm_group::slot_bytes) {
    call.post({rest == 0 ? shm_group::no_offset
                         : place_or_cma(call, at(a.in.data, shm_group::slot_bytes), rest, shm.cma().whole),
               shm_group::no_offset, mine});
    co_await call.wait_all(step);
  } else {
    call.post();
  }
  for (int r = 0; r < call.size() && !known; ++r)
    if (r != a.root) longest = std::max<std::size_t>(longest, shm.descriptor_of(r, step).longest);
  if (longest > shm_group::slot_bytes && shm.descriptor_of(a.root, step).in != shm_group::no_offset) {
    const slot_parts places = gather_table(call.size());
    const std::byte* const table = call.slot(a.root, step, places.total());
    if (const auto room = places.told(table, me); !known && room != mine)
      co_await link.refuse(other_length(link, a, call.rank(), mine, a.root, room));
    const std::size_t begin = known ? me * mine : places.told_place(table, me);
    co_await move_mapped(link, call, shm, a.root, step, flow::to_root,
                         const_cast<std::byte*>(at(a.in.data, mine - rest)),
                         [=](int) { return byte_range{begin + mine - rest, rest}; });
    longest = 0;
  }
  shown.close();
  for (std::size_t done = shm_group::slot_bytes; done < longest; done += shm_group::slot_bytes) {
    step = call.next();
    co_await call.wait_all(step - 1);
    stage(done);
    call.post();
  }
  if (!known && shm.choice_due(longest)) co_await choose_staging(call, shm);
}

/// Runs direct_scatter() on the root: describes its buffer, or stages chunks of all blocks until the longest is done.
template <mapped_transport T>
routine scatter_at_root(group_link<T> link, shm_call<T> call, shm_group& shm, scatter_args a) {
  const bool known = a.blocks.equal();
  const auto n = static_cast<std::size_t>(call.size()), root = static_cast<std::size_t>(a.root);
  const slot_parts parts{n, root, a.blocks, a.out.element_bytes};
  const auto block = [&a](int r) noexcept { return block_of(a, a.out.element_bytes, r); };
  const auto stage = [&](std::size_t done) noexcept {
    for (int r = 0; r < call.size(); ++r) {
      const auto [offset, bytes] = block(r);
      if (r != a.root && done < bytes)
        shm.stage(parts.of(call.own_slot(parts.total()), root, static_cast<std::size_t>(r)),
                  at(a.in.data, offset + done), chunk_size(bytes, done, parts.most()));
    }
  };
  const std::size_t longest = parts.longest();
  const std::byte* const own = at(a.in.data, block(a.root).offset);
  shm_group::exposure_epoch shown{shm, link.link()};
  std::uint64_t step = call.next();
  shm_group::buffer_descriptor here{shm_group::no_offset, own == a.out.data ? takes_share : shm_group::no_offset,
                                    longest};
  if (longest >= worth_mapping && root_may_wait(call, longest))
    here.in = place_or_cma(call, a.in.data, a.in.bytes(), shm.cma().whole);
  const bool mapped = here.in != shm_group::no_offset;
  if (!mapped || !known) co_await call.wait_all(step - 1);
  for (int r = 0; r < call.size() && !known; ++r)
    parts.tell(call.own_slot(parts.total()), static_cast<std::size_t>(r), block(r).bytes, block(r).offset);
  if (!mapped) stage(0);
  if (!known || longest >= worth_mapping)
    call.post(here);
  else
    call.post();
  copy_bytes(a.out.data, own, a.out.bytes());
  if (mapped) {
    co_await call.wait_all(step);
    for (int r = 0; r < call.size(); ++r)  // before anything is stored into their buffers
      if (r != a.root && shm.descriptor_of(r, step).out != block(r).bytes)
        co_await link.refuse(other_length(link, a, a.root, block(r).bytes, r, shm.descriptor_of(r, step).out));
    co_await move_mapped(link, call, shm, a.root, step, flow::from_root, const_cast<std::byte*>(at(a.in.data, 0)),
                         [=](int r) { return block_of(a, a.out.element_bytes, r); });
  }
  shown.close();
  for (std::size_t done = parts.most(); !mapped && done < longest; done += parts.most()) {
    step = call.next();
    co_await call.wait_all(step - 1);
    stage(done);
    call.post();
  }
  if (!known && !mapped && shm.choice_due(longest)) co_await choose_staging(call, shm);
}

/// Runs direct_scatter() on every other rank: copies its block from the root's buffer, or its chunks from the slots.
template <mapped_transport T>
routine scatter_at_rank(group_link<T> link, shm_call<T> call, shm_group& shm, scatter_args a) {
  const auto n = static_cast<std::size_t>(call.size()), me = static_cast<std::size_t>(call.rank());
  const auto root = static_cast<std::size_t>(a.root);
  const bool known = a.blocks.equal();
  const std::size_t mine = a.out.bytes();
  const bool notes = !known || mine >= worth_mapping;
  std::size_t longest = mine;
  shm_group::exposure_epoch shown{shm, link.link()};
  std::uint64_t step = call.next();
  if (notes)
    call.post(
        {mine >= worth_mapping ? place_or_cma(call, a.out.data, mine, shm.cma().whole) : shm_group::no_offset, mine});
  else
    call.post();
  co_await call.wait_rank(a.root, step);
  if (!known) longest = shm.descriptor_of(a.root, step).longest;
  const slot_parts parts =
      known ? slot_parts(n, root, a.blocks, a.out.element_bytes) : slot_parts::with_table(n, longest);
  const std::byte* const slot = call.slot(a.root, step, parts.total());
  if (const auto told = parts.told(slot, me); !known && told != mine)
    co_await link.refuse(other_length(link, a, a.root, told, call.rank(), mine));
  if (notes && shm.descriptor_of(a.root, step).in != shm_group::no_offset) {
    const std::size_t begin = known ? me * mine : parts.told_place(slot, me);
    co_await move_mapped(link, call, shm, a.root, step, flow::from_root, at(a.out.data, 0),
                         [=](int) { return byte_range{begin, mine}; });
    longest = 0;
  }
  shown.close();
  for (std::size_t done = 0; done < longest; done += parts.most()) {
    if (done != 0) {
      step = call.next();
      call.post();
      co_await call.wait_rank(a.root, step);
    }
    if (done < mine)
      copy_bytes(at(a.out.data, done), parts.of(call.slot(a.root, step, parts.total()), root, me),
                 chunk_size(mine, done, parts.most()));
  }
  if (!known && shm.choice_due(longest)) co_await choose_staging(call, shm);
}

}  // namespace detail

/// Gather through memory that the ranks share: each rank stages its block in slots of 256 KiB, the root copies them
/// out. One round per slot of the longest block, in which only the root waits.
///
/// If the others map the root's output or write it by cross-memory attach, they store the rest of their blocks beyond
/// the first slot there themselves, in one round. A root whose own block is in place copies 1/n of each rest from the
/// input itself, if it maps that. If the root alone knows the lengths of the blocks, each rank describes the length of
/// its own, and all wait for the first slots of all.
template <mapped_transport T>
routine direct_gather(group_link<T> link, shm_group& shm, gather_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  if (a.blocks.equal() && shm.choice_due(a.in.bytes())) co_await detail::choose_staging(call, shm);
  if (call.rank() == a.root)
    co_await detail::gather_at_root(link, call, shm, a);
  else
    co_await detail::gather_at_rank(link, call, shm, a);
}

/// Scatter through memory that the ranks share. If the others map the root's input, or read it by cross-memory attach,
/// from 4 KiB on, they copy their blocks from there: two rounds. A root whose own block is in place stores 1/n of each
/// block into the output itself, if it maps that.
///
/// Otherwise the root stages a chunk for each rank in its slot, 1/n of 256 KiB each: one round with the root per chunk
/// of the longest block but its own. If the root alone knows the lengths of the blocks, a table of them follows the
/// chunks.
template <mapped_transport T>
routine direct_scatter(group_link<T> link, shm_group& shm, scatter_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  if (a.blocks.equal() && shm.choice_due(a.out.bytes())) co_await detail::choose_staging(call, shm);
  if (call.rank() == a.root)
    co_await detail::scatter_at_root(link, call, shm, a);
  else
    co_await detail::scatter_at_rank(link, call, shm, a);
}

}  // namespace tutti::algo
