#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/group/mapped_move.hpp>

namespace tutti::algo {

/// Broadcast through memory that the ranks share. From 4 KiB on the root describes its buffer if the others map it or
/// read it by cross-memory attach (algo/shm/group/cma_sizes.hpp): they copy from it, except for 1/n that the root
/// stores into their buffers if it maps them. Two rounds.
///
/// Otherwise the root stages chunks of 128 KiB, which the others copy out; the root is at most one chunk ahead. One
/// round with the root per chunk.
template <mapped_transport T>
routine direct_broadcast(group_link<T> link, shm_group& shm, broadcast_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const std::size_t bytes = a.data.bytes();
  if (shm.choice_due(bytes)) co_await detail::choose_staging(call, shm);
  const bool root = call.rank() == a.root;
  shm_group::exposure_epoch shown{shm, link.link()};
  for (std::size_t done = 0; done == 0 || done < bytes; done += detail::copy_chunk) {
    const std::size_t chunk = (std::min)(detail::copy_chunk, bytes - done);
    const std::uint64_t step = call.next();
    const bool tells = done == 0 && bytes >= worth_mapping;
    const bool may_wait = tells && (!root || detail::root_may_wait(call, bytes));
    const std::uint64_t here =
        may_wait ? detail::place_or_cma(call, a.data.data, bytes, shm.cma().whole) : shm_group::no_offset;
    if (root && here == shm_group::no_offset) {
      std::byte* const slot = co_await call.free_slot(chunk);
      shm.stage(slot, at(a.data.data, done), chunk);
    }
    if (tells)
      call.post({here, detail::takes_share});
    else
      call.post();
    if (!root) co_await call.wait_rank(a.root, step, chunk <= detail::few_lines ? chunk : 0);
    if (tells && shm.descriptor_of(a.root, step).in != shm_group::no_offset) {
      co_await detail::move_mapped(link, call, shm, a.root, step, detail::flow::from_root, at(a.data.data, 0),
                                   [bytes](int) { return detail::byte_range{0, bytes}; });
      break;
    }
    if (done == 0) shown.close();
    if (!root) detail::copy_out(at(a.data.data, done), call.slot(a.root, step, chunk), chunk, bytes);
  }
  shown.close();
}

}  // namespace tutti::algo
