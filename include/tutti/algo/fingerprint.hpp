#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti::algo {

namespace detail {

enum class collective : std::uint8_t {
  barrier,
  all_reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  all_reduce_coalesced,
  reduce,
  scan,
  exclusive_scan,
  reduce_scatter_v,
  all_gather_v,
  gather,
  scatter,
  all_to_all
};

/// One word after another. Each step is a bijection, so that calls that differ in one word never look alike.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

template <class Void>
constexpr std::uint64_t fingerprint_of(collective what, std::uint64_t sequence, const basic_buffer<Void>& data,
                                       std::uint64_t rest) noexcept {
  const std::uint64_t kind = static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(data.type) << 8 |
                             std::uint64_t{data.element_bytes} << 32;
  return mix(mix(mix(mix(1, sequence), kind), data.count), rest);
}

/// The lengths of all blocks, where all ranks know them. Where they lie is each rank's own affair.
constexpr std::uint64_t lengths_of(const layout& blocks) noexcept {
  std::uint64_t hash = 1;
  for (const std::size_t c : blocks.counts()) hash = mix(hash, c);
  return hash;
}
/// What is left to agree on where not every rank knows the lengths: that they may differ.
template <class Void>
constexpr basic_buffer<Void> comparable(basic_buffer<Void> data, const layout& blocks) noexcept {
  if (!blocks.equal()) data.count = ~std::size_t{0};
  return data;
}

}  // namespace detail

/// What all ranks must call alike, as one word: the collective, its place among those of the group, the number, size
/// and type of the elements, the reduction or the root. Captures of a custom reduction are each rank's own.
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const barrier_args&) noexcept {
  return detail::fingerprint_of(detail::collective::barrier, sequence, buffer{}, 0);
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const all_reduce_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::all_reduce, sequence, a.out, static_cast<std::uint64_t>(a.op.kind));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const broadcast_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::broadcast, sequence, a.data, static_cast<std::uint64_t>(a.root));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const reduce_scatter_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::reduce_scatter, sequence, a.out,
                                static_cast<std::uint64_t>(a.op.kind));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const all_gather_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::all_gather, sequence, a.in, 0);
}

constexpr std::uint64_t fingerprint(std::uint64_t sequence, const all_reduce_coalesced_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::all_reduce_coalesced, sequence,
                                buffer{nullptr, a.data.count, a.data.element_bytes, a.data.type},
                                static_cast<std::uint64_t>(a.op.kind));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const reduce_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::reduce, sequence, a.in,
                                static_cast<std::uint64_t>(a.op.kind) << 32 | static_cast<std::uint32_t>(a.root));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const scan_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::scan, sequence, a.in, static_cast<std::uint64_t>(a.op.kind));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const exclusive_scan_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::exclusive_scan, sequence, a.in,
                                static_cast<std::uint64_t>(a.op.kind));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const reduce_scatter_v_args& a) noexcept {
  const buffer any_count{nullptr, 0, a.out.element_bytes, a.out.type};
  return detail::mix(detail::fingerprint_of(detail::collective::reduce_scatter_v, sequence, any_count,
                                            static_cast<std::uint64_t>(a.op.kind)),
                     detail::lengths_of(a.blocks));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const all_gather_v_args& a) noexcept {
  const buffer any_count{nullptr, 0, a.in.element_bytes, a.in.type};
  return detail::fingerprint_of(detail::collective::all_gather_v, sequence, any_count, detail::lengths_of(a.blocks));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const gather_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::gather, sequence, detail::comparable(a.in, a.blocks),
                                static_cast<std::uint64_t>(a.root));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const scatter_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::scatter, sequence, detail::comparable(a.out, a.blocks),
                                static_cast<std::uint64_t>(a.root));
}
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const all_to_all_args& a) noexcept {
  return detail::fingerprint_of(detail::collective::all_to_all, sequence, detail::comparable(a.in, a.in_blocks), 0);
}

}  // namespace tutti::algo
