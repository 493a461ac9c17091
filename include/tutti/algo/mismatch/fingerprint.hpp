#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/transport/messaging/call_log.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace tutti::algo {

namespace detail {

template <class Void>
constexpr call_signature call_on(collective what, std::uint64_t sequence, const basic_buffer<Void>& data,
                                 std::uint64_t rest = 0) noexcept {
  return {sequence, data.count, rest, data.element_bytes, what, data.type};
}
/// Returns the bits of a mean_over's divisor, 0 for other reductions. Other values that a reduction captures may differ
/// between ranks.
constexpr std::uint64_t divisor_of(const reduction& with) noexcept {
  if (with.kind != reduction_kind::mean_over) return 0;
  return std::bit_cast<std::array<std::uint64_t, sizeof with.context / 8>>(with.context)[0];
}
template <class Void>
constexpr call_signature call_on(collective what, std::uint64_t sequence, const basic_buffer<Void>& data,
                                 const reduction& with, std::uint64_t rest = 0) noexcept {
  rest = call_signature::rest_with(rest, divisor_of(with));
  return {sequence, data.count, rest, data.element_bytes, what, data.type, static_cast<std::uint8_t>(with.kind)};
}
constexpr std::uint64_t root_of(int root) noexcept { return static_cast<std::uint32_t>(root); }

/// Returns a hash of the lengths of all blocks, for collectives in which all ranks know them. Offsets may differ.
constexpr std::uint64_t lengths_of(const layout& blocks) noexcept {
  std::uint64_t hash = 1;
  for (const std::size_t c : blocks.counts()) hash = mix(hash, c);
  return hash;
}
template <class Void>
constexpr basic_buffer<Void> of_any_count(basic_buffer<Void> data) noexcept {
  data.count = call_signature::any_count;
  return data;
}
/// Returns `data` with the count that all ranks can compare: any_count if the blocks may have different lengths.
template <class Void>
constexpr basic_buffer<Void> comparable(const basic_buffer<Void>& data, const layout& blocks) noexcept {
  return blocks.equal() ? data : of_any_count(data);
}

}  // namespace detail

/// Returns the signature of a call, which must be equal on all ranks. `sequence` is the call's number in its group.
constexpr call_signature call_of(std::uint64_t sequence, const barrier_args&) noexcept {
  return detail::call_on(collective::barrier, sequence, buffer{});
}
constexpr call_signature call_of(std::uint64_t sequence, const all_reduce_args& a) noexcept {
  return detail::call_on(collective::all_reduce, sequence, a.out, a.op);
}
constexpr call_signature call_of(std::uint64_t sequence, const broadcast_args& a) noexcept {
  return detail::call_on(collective::broadcast, sequence, a.data, detail::root_of(a.root));
}
constexpr call_signature call_of(std::uint64_t sequence, const broadcast_sized_args& a) noexcept {
  return detail::call_on(collective::broadcast_sized, sequence, detail::of_any_count(buffer{}),
                         detail::root_of(a.root));
}
constexpr call_signature call_of(std::uint64_t sequence, const reduce_scatter_args& a) noexcept {
  return detail::call_on(collective::reduce_scatter, sequence, a.in, a.op);
}
constexpr call_signature call_of(std::uint64_t sequence, const all_gather_args& a) noexcept {
  return detail::call_on(collective::all_gather, sequence, a.out, call_signature::of_part(a.within));
}
constexpr call_signature call_of(std::uint64_t sequence, const all_reduce_coalesced_args& a) noexcept {
  return detail::call_on(collective::all_reduce_coalesced, sequence,
                         buffer{nullptr, a.data.count, a.data.element_bytes, a.data.type}, a.op);
}
constexpr call_signature call_of(std::uint64_t sequence, const reduce_args& a) noexcept {
  return detail::call_on(collective::reduce, sequence, a.in, a.op, detail::root_of(a.root));
}
constexpr call_signature call_of(std::uint64_t sequence, const scan_args& a) noexcept {
  return detail::call_on(collective::scan, sequence, a.in, a.op);
}
constexpr call_signature call_of(std::uint64_t sequence, const exclusive_scan_args& a) noexcept {
  return detail::call_on(collective::exclusive_scan, sequence, a.in, a.op);
}
constexpr call_signature call_of(std::uint64_t sequence, const reduce_scatter_v_args& a) noexcept {
  return detail::call_on(collective::reduce_scatter_v, sequence, detail::of_any_count(a.out), a.op,
                         detail::lengths_of(a.blocks));
}
constexpr call_signature call_of(std::uint64_t sequence, const all_gather_v_args& a) noexcept {
  return detail::call_on(collective::all_gather_v, sequence, detail::of_any_count(a.in), detail::lengths_of(a.blocks));
}
constexpr call_signature call_of(std::uint64_t sequence, const gather_args& a) noexcept {
  return detail::call_on(collective::gather, sequence, detail::comparable(a.in, a.blocks), detail::root_of(a.root));
}
constexpr call_signature call_of(std::uint64_t sequence, const scatter_args& a) noexcept {
  return detail::call_on(collective::scatter, sequence, detail::comparable(a.out, a.blocks), detail::root_of(a.root));
}
constexpr call_signature call_of(std::uint64_t sequence, const all_to_all_args& a) noexcept {
  return detail::call_on(collective::all_to_all, sequence, detail::comparable(a.in, a.in_blocks));
}

/// Returns the entry of the call log for this call; `via` is the algorithm that this rank takes.
constexpr call_log::entry noted(std::uint32_t context, const call_signature& c, algorithm via) noexcept {
  return {tag::make(context, c.sequence, static_cast<std::uint32_t>(via)), detail::mix(0, c.fingerprint()),
          c.short_id()};
}

}  // namespace tutti::algo
