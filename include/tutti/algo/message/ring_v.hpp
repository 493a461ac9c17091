#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// All-gather of blocks of any lengths around a ring, in chunks of 256 KiB. n-1 steps per chunk of the longest block;
/// every rank sends all blocks but its right neighbour's once.
template <message_link L>
routine ring_all_gather_v(L link, all_gather_v_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes, longest = a.blocks.longest() * element;
  constexpr std::size_t segment = chunk_bytes;
  const auto chunk = [&](int b, std::size_t done) {
    const auto i = static_cast<std::size_t>(b);
    const std::size_t bytes = a.blocks.size(i) * element;
    return std::span{at(a.out.data, a.blocks.begin(i) * element + (std::min)(done, bytes)),
                     chunk_size(bytes, done, segment)};
  };
  // The own block is sent from the input, as in ring_gather().
  const auto own = [&](std::size_t done) {
    return std::span{at(a.in.data, (std::min)(done, a.in.bytes())), chunk_size(a.in.bytes(), done, segment)};
  };
  copy_bytes(chunk(r, 0).data(), a.in.data, a.in.bytes());
  for (std::size_t done = 0; done == 0 || done < longest; done += segment)
    for (int step = 0; step < n - 1; ++step) {
      const std::span<const std::byte> out = step == 0 ? own(done) : chunk((r + n - step) % n, done);
      auto sending = link.send((r + 1) % n, 0, out);
      co_await link.recv((r + n - 1) % n, 0, chunk((r + 2 * n - step - 1) % n, done));
      co_await sending;
    }
}

/// Reduce-scatter of blocks of any lengths around a ring, in chunks of 256 KiB. Partial sums of one chunk go around, so
/// temporary memory for two chunks is enough. n-1 steps per chunk of the longest block; every rank sends all blocks but
/// its own once. Block b starts at rank b + 1 and ends at rank b.
template <message_link L>
routine ring_reduce_scatter_v(L link, reduce_scatter_v_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.out.element_bytes, longest = a.blocks.longest();
  const std::size_t segment = whole_elements(chunk_bytes, element);
  const std::size_t temporary = n > 1 ? (std::min)(segment, longest) * element : 0;
  scratch one(link, temporary), other(link, temporary);
  if (!one || !other) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < longest; done += segment) {
    const auto count = [&](int b) { return chunk_size(a.blocks.size(static_cast<std::size_t>(b)), done, segment); };
    const auto operand = [&](int b) {
      const auto i = static_cast<std::size_t>(b);
      return at(a.in.data, (a.blocks.begin(i) + (std::min)(done, a.blocks.size(i))) * element);
    };
    const int first = (r + n - 1) % n;
    const std::byte* sum = operand(first);
    std::byte *incoming = one.data(), *next = other.data();
    for (int step = 0; step < n - 1; ++step) {
      const int out = (r + 2 * n - step - 1) % n, in = (r + 2 * n - step - 2) % n;
      auto sending = link.send((r + 1) % n, 0, {sum, count(out) * element});
      co_await link.recv((r + n - 1) % n, 0, {incoming, count(in) * element});
      a.op.fold(operand(in), incoming, count(in), a.op.context.data());
      co_await sending;
      sum = incoming;
      std::swap(incoming, next);
    }
    if (count(r) != 0) copy_bytes(at(a.out.data, done * element), sum, count(r) * element);
  }
  if (a.op.finish) a.op.finish(a.out.data, a.out.count, n, a.op.context.data());
}

}  // namespace tutti::algo
