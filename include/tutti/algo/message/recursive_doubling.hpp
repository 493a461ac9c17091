#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// All-reduce in which each rank exchanges everything with partners at distances 1, 2, 4, …: for small messages, where
/// steps cost more than bytes. Ranks beyond the largest power of two first give their operand to a neighbour, and get
/// the result last. Operands keep rank order, so all ranks compute the same bits. log2(n) steps (+2), N log2(n) bytes
/// sent per rank (Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine recursive_doubling_all_reduce(L link, all_reduce_args a) {
  const auto n = static_cast<unsigned>(link.size()), r = static_cast<unsigned>(link.rank());
  const std::size_t bytes = a.out.bytes();
  const auto rank_of = [](unsigned x) { return static_cast<int>(x); };
  scratch other(link, bytes);
  if (!other) co_await link.refuse({errc::out_of_resources});
  copy_bytes(a.out.data, a.in.data, bytes);
  const std::span<std::byte> mine{static_cast<std::byte*>(a.out.data), bytes};
  // Folds `other`, which came from the ranks below or above, into `mine`.
  const auto fold = [&](std::uint64_t from_below) {
    if (from_below != 0) {
      a.op.fold(mine.data(), other.data(), a.out.count, a.op.context.data());
      copy_bytes(mine.data(), other.data(), bytes);
    } else {
      a.op.fold(other.data(), mine.data(), a.out.count, a.op.context.data());
    }
  };

  // The first 2 * extra ranks form pairs; the odd rank of each pair acts for both.
  const unsigned power = std::bit_floor(n), extra = n - power;
  constexpr std::uint64_t before = 0, after = 1, exchange = 2;
  const bool paired = r < 2 * extra;
  if (paired && r % 2 == 0) {
    co_await link.send(rank_of(r + 1), before, mine);
    co_await link.recv(rank_of(r + 1), after, mine);
    co_return;
  }
  if (paired) {
    co_await link.recv(rank_of(r - 1), before, other.first(bytes));
    fold(1);
  }
  const unsigned me = paired ? r / 2 : r - extra;
  for (unsigned distance = 1; distance < power; distance *= 2) {
    const unsigned partner = me ^ distance;
    const int peer = rank_of(partner < extra ? 2 * partner + 1 : partner + extra);
    auto sending = link.send(peer, exchange + distance, mine);
    co_await link.recv(peer, exchange + distance, other.first(bytes));
    co_await sending;
    fold(me & distance);
  }
  if (a.op.finish) a.op.finish(a.out.data, a.out.count, link.size(), a.op.context.data());
  if (paired) co_await link.send(rank_of(r - 1), after, mine);
}

}  // namespace tutti::algo
