#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// The blocks of a power of two of ranks that one of them is left with while it halves: those of whole groups of
/// `distance` ranks, before the step in which it meets its partner at that distance.
struct halved_range {
  std::size_t begin = 0, end = 0;

  enum which { lower, upper };
  /// Where a rank is beside its partner at that distance.
  static which side(unsigned me, unsigned distance) noexcept { return (me & distance) != 0 ? upper : lower; }
  static halved_range before(unsigned me, unsigned power, unsigned distance) noexcept {
    halved_range range{0, power};
    for (unsigned d = 1; d < distance; d *= 2) range = range.half(side(me, d));
    return range;
  }
  [[nodiscard]] halved_range half(which w) const noexcept {
    const std::size_t middle = (begin + end) / 2;
    return w == lower ? halved_range{begin, middle} : halved_range{middle, end};
  }
};

}  // namespace detail

/// All-reduce as a reduce-scatter by halves, exchanged with partners at distances 1, 2, 4, …, and an all-gather back
/// along the same way: the bytes of a ring in fewer steps. Any rank count, any count: ranks beyond the largest power of
/// two give their operand to a neighbour first and get the result last. Operands keep rank order, so that all ranks
/// compute the bits of recursive doubling. 2 log2(n) steps (+2), 2(n-1)/n of the bytes (+N for every other of the
/// surplus pairs) (Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine halving_doubling_all_reduce(L link, all_reduce_args a) {
  using detail::halved_range;
  const auto n = static_cast<unsigned>(link.size()), r = static_cast<unsigned>(link.rank());
  const std::size_t size = a.out.element_bytes, bytes = a.out.bytes();
  auto* data = static_cast<std::byte*>(a.out.data);
  const unsigned power = std::bit_floor(n), extra = n - power;
  const std::size_t piece = whole_elements(piece_bytes, size);  // elements
  const std::size_t slot = whole_lines(std::min(piece, a.out.count) * size);
  scratch incoming(link, pieces_ahead * slot);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  copy_bytes(data, a.in.data, bytes);

  const blocks cut{a.out.count, power};
  constexpr std::uint64_t before = 0, after = 1, halving = 2, doubling = halving + 32;
  // Exchanges parts of the buffer with `peer`, some elements of each at a time. With a slot for what arrives it is
  // folded into its place.
  struct part {
    std::size_t begin, count;
  };
  const auto exchange = [&](int peer, part give, part take, std::uint64_t step, auto slot_of, auto landed) {
    const std::size_t pieces = std::max<std::size_t>((std::max(give.count, take.count) + piece - 1) / piece, 1);
    const auto cut_of = [piece](part whole, std::size_t i) {
      const std::size_t skipped = std::min(i * piece, whole.count);
      return part{whole.begin + skipped, std::min(piece, whole.count - skipped)};
    };
    return detail::pipeline(
        link, {peer, peer, pieces, pieces, step},
        [=](std::size_t i) {
          const part p = cut_of(give, i);
          return std::span<const std::byte>{data + p.begin * size, p.count * size};
        },
        [=](std::size_t i) {
          const part p = cut_of(take, i);
          return std::span{slot_of(i, p), p.count * size};
        },
        [=](std::size_t i) { landed(i, cut_of(take, i)); });
  };
  const auto slot_of = [&](std::size_t i, part) { return incoming.data() + i % pieces_ahead * slot; };
  const auto in_place = [&](std::size_t, part p) { return data + p.begin * size; };
  const auto fold_from = [&](halved_range::which partner) {
    return [&, partner](std::size_t i, part p) {
      std::byte *from = slot_of(i, p), *into = in_place(i, p);
      if (partner == halved_range::lower)
        detail::fold_left(a.op, from, into, p.count, p.count * size);
      else
        a.op.fold(from, into, p.count, a.op.context.data());
    };
  };
  const auto nothing = [](std::size_t, part) {};
  const part all{0, a.out.count}, none{0, 0};

  // The first 2 * extra ranks form pairs; the odd one of each pair stands for both.
  const bool paired = r < 2 * extra;
  if (paired && r % 2 == 0) {
    co_await exchange(static_cast<int>(r + 1), all, none, before, in_place, nothing);
    co_await exchange(static_cast<int>(r + 1), none, all, after, in_place, nothing);
    co_return;
  }
  if (paired) co_await exchange(static_cast<int>(r - 1), none, all, before, slot_of, fold_from(halved_range::lower));
  const unsigned me = paired ? r / 2 : r - extra;
  const auto peer_at = [=](unsigned distance) {
    const unsigned partner = me ^ distance;
    return static_cast<int>(partner < extra ? 2 * partner + 1 : partner + extra);
  };
  const auto part_of = [&](halved_range h) { return part{cut.begin(h.begin), cut.begin(h.end) - cut.begin(h.begin)}; };
  std::uint64_t step = 0;
  for (unsigned distance = 1; distance < power; distance *= 2, ++step) {
    const auto range = halved_range::before(me, power, distance);
    const auto mine = halved_range::side(me, distance), theirs = halved_range::side(me ^ distance, distance);
    co_await exchange(peer_at(distance), part_of(range.half(theirs)), part_of(range.half(mine)), halving + step,
                      slot_of, fold_from(theirs));
  }
  if (a.op.finish) {
    const part mine = part_of(halved_range::before(me, power, power));
    a.op.finish(data + mine.begin * size, mine.count, link.size(), a.op.context.data());
  }
  for (unsigned distance = power / 2; distance > 0; distance /= 2) {
    const auto range = halved_range::before(me, power, distance);
    const auto mine = halved_range::side(me, distance), theirs = halved_range::side(me ^ distance, distance);
    co_await exchange(peer_at(distance), part_of(range.half(mine)), part_of(range.half(theirs)), doubling + --step,
                      in_place, nothing);
  }
  if (paired) co_await exchange(static_cast<int>(r - 1), all, none, after, in_place, nothing);
}

}  // namespace tutti::algo
