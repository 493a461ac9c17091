#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Range of the blocks that a rank still holds while it halves them, among a power of two of ranks.
struct halved_range {
  std::size_t begin = 0, end = 0;

  enum which { lower, upper };
  /// Returns the half that rank `me` keeps in the exchange with its partner at `distance`.
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

/// Exchange of parts of an all_reduce's buffer between two ranks, chunk by chunk. Must outlive its routines.
template <message_link L>
class part_exchange {
 public:
  struct part {
    std::size_t begin, count;  // in elements
  };

  part_exchange(L link, const all_reduce_args& a)
      : link_(link),
        call_(a),
        chunk_(whole_elements(chunk_bytes, a.out.element_bytes)),
        slot_bytes_(whole_lines((std::min)(chunk_, a.out.count) * a.out.element_bytes)),
        slots_(link_, chunks_ahead * slot_bytes_) {}
  part_exchange(const part_exchange&) = delete;
  part_exchange& operator=(const part_exchange&) = delete;

  /// Returns false if the temporary memory could not be allocated.
  [[nodiscard]] bool ready() const noexcept { return static_cast<bool>(slots_); }

  /// Sends part `give` to `peer` and receives part `take` into its place in the buffer.
  [[nodiscard]] routine replace(int peer, part give, part take, std::uint64_t step) {
    return exchange(
        peer, give, take, step, [this](std::size_t, part p) { return place_of(p); }, [](std::size_t, part) {});
  }
  /// Sends part `give` to `peer` and folds what it receives into part `take`, as the operand of a partner on that side.
  [[nodiscard]] routine fold(int peer, part give, part take, std::uint64_t step, halved_range::which partner) {
    return exchange(
        peer, give, take, step, [this](std::size_t i, part) { return slot(i); },
        [this, partner](std::size_t i, part p) { fold_chunk(slot(i), p, partner); });
  }
  /// Finishes the reduction of a part to which all ranks have contributed.
  void finish(part p) {
    if (call_.op.finish) call_.op.finish(place_of(p), p.count, link_.size(), call_.op.context.data());
  }

 private:
  template <class Into, class Landed>
  routine exchange(int peer, part give, part take, std::uint64_t step, Into into, Landed landed) {
    const std::size_t chunks = std::max<std::size_t>(((std::max)(give.count, take.count) + chunk_ - 1) / chunk_, 1);
    return pipeline(
        link_, {peer, peer, chunks, chunks, step},
        [=, this](std::size_t i) {
          const part p = nth(give, i);
          return std::span<const std::byte>{place_of(p), p.count * element()};
        },
        [=, this](std::size_t i) {
          const part p = nth(take, i);
          return std::span{into(i, p), p.count * element()};
        },
        [=, this](std::size_t i) { landed(i, nth(take, i)); });
  }
  void fold_chunk(std::byte* from, part p, halved_range::which partner) {
    if (partner == halved_range::lower)
      fold_left(call_.op, from, place_of(p), p.count, p.count * element());
    else
      call_.op.fold(from, place_of(p), p.count, call_.op.context.data());
  }

  [[nodiscard]] std::size_t element() const noexcept { return call_.out.element_bytes; }
  [[nodiscard]] part nth(part whole, std::size_t i) const noexcept {
    const std::size_t skipped = (std::min)(i * chunk_, whole.count);
    return {whole.begin + skipped, (std::min)(chunk_, whole.count - skipped)};
  }
  [[nodiscard]] std::byte* place_of(part p) const noexcept {
    return static_cast<std::byte*>(call_.out.data) + p.begin * element();
  }
  [[nodiscard]] std::byte* slot(std::size_t i) noexcept { return slots_.data() + i % chunks_ahead * slot_bytes_; }

  L link_;
  const all_reduce_args& call_;
  std::size_t chunk_, slot_bytes_;
  scratch slots_;
};

}  // namespace detail

/// All-reduce as a reduce-scatter by recursive halving, with partners at distances 1, 2, 4, …, and an all-gather by
/// recursive doubling back along the same distances: the bytes of a ring in fewer steps. Any number of ranks, any
/// count; ranks beyond the largest power of two first give their operand to a neighbour, and get the result last.
/// Operands keep rank order, so the result has the same bits as that of recursive doubling. 2 log2(n) steps (+2),
/// 2N(n-1)/n bytes per rank (+N for one rank of each surplus pair) (Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine halving_doubling_all_reduce(L link, all_reduce_args a) {
  using detail::halved_range;
  using part = typename detail::part_exchange<L>::part;
  const auto n = static_cast<unsigned>(link.size()), r = static_cast<unsigned>(link.rank());
  const unsigned power = std::bit_floor(n), extra = n - power;
  detail::part_exchange<L> with(link, a);
  if (!with.ready()) co_await link.refuse({errc::out_of_resources});
  copy_bytes(a.out.data, a.in.data, a.out.bytes());
  constexpr std::uint64_t before = 0, after = 1, halving = 2, doubling = halving + 32;
  const part all{0, a.out.count}, none{0, 0};

  // The first 2 * extra ranks form pairs; the odd rank of each pair acts for both.
  const bool paired = r < 2 * extra;
  if (paired && r % 2 == 0) {
    co_await with.replace(static_cast<int>(r + 1), all, none, before);
    co_await with.replace(static_cast<int>(r + 1), none, all, after);
    co_return;
  }
  if (paired) co_await with.fold(static_cast<int>(r - 1), none, all, before, halved_range::lower);
  const unsigned me = paired ? r / 2 : r - extra;
  const auto peer_at = [=](unsigned distance) {
    const unsigned partner = me ^ distance;
    return static_cast<int>(partner < extra ? 2 * partner + 1 : partner + extra);
  };
  const auto part_of = [cut = blocks{a.out.count, power}](halved_range h) {
    return part{cut.begin(h.begin), cut.begin(h.end) - cut.begin(h.begin)};
  };
  const auto half = [=](unsigned distance, halved_range::which w) {
    return part_of(halved_range::before(me, power, distance).half(w));
  };
  std::uint64_t step = 0;
  for (unsigned distance = 1; distance < power; distance *= 2, ++step) {
    const auto mine = halved_range::side(me, distance), theirs = halved_range::side(me ^ distance, distance);
    co_await with.fold(peer_at(distance), half(distance, theirs), half(distance, mine), halving + step, theirs);
  }
  with.finish(part_of(halved_range::before(me, power, power)));
  for (unsigned distance = power / 2; distance > 0; distance /= 2) {
    const auto mine = halved_range::side(me, distance), theirs = halved_range::side(me ^ distance, distance);
    --step;
    co_await with.replace(peer_at(distance), half(distance, mine), half(distance, theirs), doubling + step);
  }
  if (paired) co_await with.replace(static_cast<int>(r - 1), all, none, after);
}

}  // namespace tutti::algo
