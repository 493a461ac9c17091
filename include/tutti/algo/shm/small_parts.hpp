#pragma once
#include <cstddef>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/buffer_list_cursor.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/small_exchange.hpp>
#include <tutti/core/args.hpp>

/// Copies and folds of a small call: how each collective puts its part and combines the others'. `place(r)` returns the
/// address of what rank r has put. Blocks of different lengths, and lists, are packed without gaps.
namespace tutti::algo::detail {

/// Returns the bytes of an operand's element.
template <class Args>
std::size_t element_of(const Args& a) noexcept {
  return a.in.element_bytes;
}
inline std::size_t element_of(const all_reduce_coalesced_args& a) noexcept { return a.data.element_bytes; }

template <class Args>
void put_part(const Args&, const small_exchange& x, shm_group& shm, std::byte* to) noexcept {
  const std::size_t from = x.taken < x.bytes ? x.begin : x.bytes, behind = from + x.taken;
  shm.stage(to, x.in, from);
  if (behind < x.bytes) shm.stage(to + behind, at(x.in, behind), x.bytes - behind);
}
inline void put_part(const all_gather_v_args& a, const small_exchange&, shm_group& shm, std::byte* to) noexcept {
  shm.stage(to, a.in.data, a.in.bytes());
}
inline void put_part(const reduce_scatter_v_args& a, const small_exchange& x, shm_group& shm, std::byte* to) noexcept {
  if (a.blocks.offsets().empty()) return shm.stage(to, a.in.data, x.bytes);
  for (std::size_t r = 0, done = 0; done < x.bytes; ++r) {
    const std::size_t bytes = a.blocks.size(r) * a.out.element_bytes;
    shm.stage(to + done, at(a.in.data, a.blocks.begin(r) * a.out.element_bytes), bytes);
    done += bytes;
  }
}
inline void put_part(const all_reduce_coalesced_args& a, const small_exchange& x, shm_group& shm,
                     std::byte* to) noexcept {
  buffer_list_cursor{a.data}.next(
      x.bytes, [&](auto chunk, std::size_t offset) { shm.stage(to + offset, chunk.data(), chunk.size()); });
}

/// Returns the part that this rank takes of its own input.
template <class Args>
const std::byte* own_part(const Args&, const small_exchange& x, int) noexcept {
  return at(x.in, x.begin);
}
inline const std::byte* own_part(const reduce_scatter_v_args& a, const small_exchange&, int me) noexcept {
  return at(a.in.data, a.blocks.begin(static_cast<std::size_t>(me)) * a.out.element_bytes);
}

/// Lists the operands if the call needs one fold, while the others' data is on its way; null if it needs several.
template <class Args, mapped_transport T, class Place>
const void* const* list_operands(const Args& a, const small_exchange& x, const shm_call<T>& call, Place place) {
  if (x.last == 0) return nullptr;
  return call.from_others(own_part(a, x, call.rank()), [&](int r) { return place(r) + x.begin; });
}
template <mapped_transport T, class Place>
const void* const* list_operands(const all_reduce_coalesced_args&, const small_exchange&, const shm_call<T>&, Place) {
  return nullptr;
}

template <class Args, mapped_transport T, class Place>
void fold_parts(const Args& a, const small_exchange& x, const shm_call<T>&, const void* const* operands, Place) {
  if (x.last != 0) a.op.fold_all(operands, x.last, x.out, x.count, a.op.context.data());
}
template <mapped_transport T, class Place>
void fold_parts(const all_reduce_coalesced_args& a, const small_exchange& x, const shm_call<T>& call,
                const void* const*, Place place) {
  buffer_list_cursor{a.data}.next(x.bytes, [&](auto chunk, std::size_t offset) {
    a.op.fold_all(call.from_others(chunk.data(), [&](int r) { return place(r) + offset; }), call.size(), chunk.data(),
                  chunk.size() / a.data.element_bytes, a.op.context.data());
  });
}

template <class Args, class Place>
void copy_parts(const Args&, const small_exchange& x, int me, Place place) noexcept {
  for (int r = x.first; r < x.last; ++r)
    copy_bytes(at(x.out, static_cast<std::size_t>(r - x.first) * x.taken),
               r == me ? at(x.in, x.begin) : place(r) + x.begin, x.taken);
}
template <class Place>
void copy_parts(const barrier_args&, const small_exchange&, int, Place) noexcept {}
template <class Place>
void copy_parts(const all_gather_v_args& a, const small_exchange& x, int me, Place place) noexcept {
  const std::size_t element = a.in.element_bytes;
  std::size_t before = 0;
  for (int r = 0; r < x.last; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::size_t begin = a.blocks.offsets().empty() ? before : a.blocks.begin(i);
    copy_bytes(at(x.out, begin * element), r == me ? at(x.in, 0) : place(r), a.blocks.size(i) * element);
    before += a.blocks.size(i);
  }
}

}  // namespace tutti::algo::detail
