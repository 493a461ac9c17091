#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti::algo {

namespace detail {

enum class collective : std::uint8_t { barrier, all_reduce, broadcast, reduce_scatter, all_gather };

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

}  // namespace tutti::algo
