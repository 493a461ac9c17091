#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/selection/cost.hpp>
#include <tutti/algo/selection/problem.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti::algo {

namespace detail {

/// Returns the bits of a mean_over's divisor, 0 for other reductions. Other values that a reduction captures may differ
/// between ranks.
constexpr std::uint64_t divisor_of(const reduction& with) noexcept {
  if (with.kind != reduction_kind::mean_over) return 0;
  return std::bit_cast<std::array<std::uint64_t, sizeof with.context / 8>>(with.context)[0];
}
template <class Void>
constexpr call_signature signature_of(collective what, std::uint64_t sequence, const basic_buffer<Void>& data,
                                      std::uint64_t rest = 0) noexcept {
  return {sequence, data.count, rest, data.element_bytes, what, data.type};
}
template <class Void>
constexpr call_signature signature_of(collective what, std::uint64_t sequence, const basic_buffer<Void>& data,
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
/// Returns the problem with a message of `bytes` bytes, of elements of `element` bytes if the algorithms fold.
constexpr problem with_message(problem s, std::size_t bytes, std::size_t element = 1) noexcept {
  s.bytes = bytes;
  s.element = element;
  return s;
}

}  // namespace detail

/// Properties of a collective, by the type of its arguments:
///
///   signature(sequence, a)  what all ranks must call alike; `sequence` is the call's number in its group
///   algorithms              the algorithms that call_options::via may name; empty if there is a single implementation
///   size(a, s)              the problem `s` with the size of the message. The bytes stay 0 if not all ranks know them,
///                           or if no choice depends on them, as with blocks of any lengths
///   cost(via, e)            the work of an algorithm over messages; only if there are several that differ
template <class Args>
struct traits;

/// Returns the signature of a call.
template <class Args>
constexpr call_signature call_of(std::uint64_t sequence, const Args& a) noexcept {
  return traits<Args>::signature(sequence, a);
}

template <>
struct traits<barrier_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const barrier_args&) noexcept {
    return detail::signature_of(collective::barrier, sequence, buffer{});
  }
  static constexpr std::array<algorithm, 0> algorithms{};
};

template <>
struct traits<all_reduce_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const all_reduce_args& a) noexcept {
    return detail::signature_of(collective::all_reduce, sequence, a.out, a.op);
  }
  static constexpr std::array algorithms{
      algorithm::direct,           algorithm::ring,         algorithm::recursive_doubling,
      algorithm::halving_doubling, algorithm::hierarchical, algorithm::pairwise};
  static constexpr problem size(const all_reduce_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.out.bytes(), a.out.element_bytes);
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return all_reduce_work(via, e); }
};

template <>
struct traits<all_reduce_coalesced_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const all_reduce_coalesced_args& a) noexcept {
    return detail::signature_of(collective::all_reduce_coalesced, sequence,
                                buffer{nullptr, a.data.count, a.data.element_bytes, a.data.type}, a.op);
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::ring, algorithm::recursive_doubling,
                                         algorithm::pairwise};
  static constexpr problem size(const all_reduce_coalesced_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.data.bytes(), a.data.element_bytes);
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return all_reduce_work(via, e); }
};

template <>
struct traits<broadcast_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const broadcast_args& a) noexcept {
    return detail::signature_of(collective::broadcast, sequence, a.data, detail::root_of(a.root));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::tree, algorithm::chain, algorithm::hierarchical};
  static constexpr problem size(const broadcast_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.data.bytes());
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return broadcast_work(via, e); }
};

template <>
struct traits<broadcast_sized_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const broadcast_sized_args& a) noexcept {
    return detail::signature_of(collective::broadcast_sized, sequence, detail::of_any_count(buffer{}),
                                detail::root_of(a.root));
  }
  static constexpr std::array algorithms{algorithm::tree};
};

template <>
struct traits<reduce_scatter_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const reduce_scatter_args& a) noexcept {
    return detail::signature_of(collective::reduce_scatter, sequence, a.in, a.op);
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::ring, algorithm::pairwise,
                                         algorithm::hierarchical};
  static constexpr problem size(const reduce_scatter_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.in.bytes(), a.out.element_bytes);
  }
  static constexpr work cost(algorithm, const extent& e) noexcept { return reduce_scatter_work(e); }
};

template <>
struct traits<reduce_scatter_v_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const reduce_scatter_v_args& a) noexcept {
    return detail::signature_of(collective::reduce_scatter_v, sequence, detail::of_any_count(a.out), a.op,
                                detail::lengths_of(a.blocks));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::ring};
  static constexpr problem size(const reduce_scatter_v_args& a, const problem& s) noexcept {
    return detail::with_message(s, s.bytes, a.out.element_bytes);
  }
};

template <>
struct traits<reduce_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const reduce_args& a) noexcept {
    return detail::signature_of(collective::reduce, sequence, a.in, a.op, detail::root_of(a.root));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::chain, algorithm::tree, algorithm::hierarchical};
  static constexpr problem size(const reduce_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.in.bytes(), a.in.element_bytes);
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return reduce_work(via, e); }
};

template <>
struct traits<scan_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const scan_args& a) noexcept {
    return detail::signature_of(collective::scan, sequence, a.in, a.op);
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::recursive_doubling, algorithm::chain};
  static constexpr problem size(const scan_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.in.bytes(), a.in.element_bytes);
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return scan_work(via, e); }
};

template <>
struct traits<exclusive_scan_args> : traits<scan_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const exclusive_scan_args& a) noexcept {
    return detail::signature_of(collective::exclusive_scan, sequence, a.in, a.op);
  }
};

template <>
struct traits<all_gather_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const all_gather_args& a) noexcept {
    return detail::signature_of(collective::all_gather, sequence, a.out, call_signature::of_part(a.within));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::ring, algorithm::bruck, algorithm::hierarchical};
  static constexpr problem size(const all_gather_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.out.bytes());
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return all_gather_work(via, e); }
};

template <>
struct traits<all_gather_v_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const all_gather_v_args& a) noexcept {
    return detail::signature_of(collective::all_gather_v, sequence, detail::of_any_count(a.in),
                                detail::lengths_of(a.blocks));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::ring};
  static constexpr problem size(const all_gather_v_args&, const problem& s) noexcept { return s; }
};

template <>
struct traits<gather_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const gather_args& a) noexcept {
    return detail::signature_of(collective::gather, sequence, detail::comparable(a.in, a.blocks),
                                detail::root_of(a.root));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::linear, algorithm::tree};
  static constexpr problem size(const gather_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.blocks.equal() ? a.in.bytes() * static_cast<std::size_t>(s.world_size) : 0);
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return rooted_work(via, e, 1); }
};

template <>
struct traits<scatter_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const scatter_args& a) noexcept {
    return detail::signature_of(collective::scatter, sequence, detail::comparable(a.out, a.blocks),
                                detail::root_of(a.root));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::linear, algorithm::tree};
  static constexpr problem size(const scatter_args& a, const problem& s) noexcept {
    return detail::with_message(s, a.blocks.equal() ? a.out.bytes() * static_cast<std::size_t>(s.world_size) : 0);
  }
  static constexpr work cost(algorithm via, const extent& e) noexcept { return rooted_work(via, e, 4); }
};

template <>
struct traits<all_to_all_args> {
  static constexpr call_signature signature(std::uint64_t sequence, const all_to_all_args& a) noexcept {
    return detail::signature_of(collective::all_to_all, sequence, detail::comparable(a.in, a.in_blocks));
  }
  static constexpr std::array algorithms{algorithm::direct, algorithm::pairwise};
  static constexpr problem size(const all_to_all_args&, const problem& s) noexcept { return s; }
};

// The v-variants of these are the same collective to the ranks: only the two of a block know its length.
template <>
struct traits<gather_v_args> : traits<gather_args> {
  static constexpr std::array algorithms{algorithm::direct, algorithm::linear};
};
template <>
struct traits<scatter_v_args> : traits<scatter_args> {
  static constexpr std::array algorithms{algorithm::direct, algorithm::linear};
};
template <>
struct traits<all_to_all_v_args> : traits<all_to_all_args> {};

}  // namespace tutti::algo
