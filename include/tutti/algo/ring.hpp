#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

inline constexpr std::size_t ring_segment_bytes = std::size_t{256} << 10;

/// Reduces block by block around the ring: afterwards rank r's block `r` of `data` is complete. Steps [first, first + n
/// - 1). Block b starts at rank b + 1 and ends at rank b, so the fold order of a block is fixed, though not rank 0
/// first.
template <message_link L>
routine ring_reduce(L link, void* data, std::size_t element_bytes, blocks cut, const reduction& with,
                    std::uint64_t first) {
  const int n = link.size(), r = link.rank();
  const int right = (r + 1) % n, left = (r + n - 1) % n;
  scratch incoming(std::min(ring_segment_bytes, cut.size(0) * element_bytes));
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  const std::size_t segment = ring_segment_bytes / element_bytes;
  for (int step = 0; step < n - 1; ++step) {
    const auto out = static_cast<std::size_t>((r + 2 * n - step - 1) % n),
               in = static_cast<std::size_t>((r + 2 * n - step - 2) % n);
    for (std::size_t at_element = 0; at_element == 0 || at_element < cut.longest(); at_element += segment) {
      const auto part = [&](std::size_t b) {
        return std::min(segment, cut.size(b) - std::min(at_element, cut.size(b))) * element_bytes;
      };
      const auto place = [&](std::size_t b) { return at(data, (cut.begin(b) + at_element) * element_bytes); };
      const auto tag = first + static_cast<std::uint64_t>(step);
      auto sending = link.send(right, tag, {place(out), part(out)});
      co_await link.recv(left, tag, incoming.first(part(in)));
      // What arrives was folded over the ranks to the left: it is the left operand.
      with.fold(place(in), incoming.data(), part(in) / element_bytes, with.context.data());
      co_await sending;
      copy_bytes(place(in), incoming.data(), part(in));
    }
  }
}

/// Passes blocks around the ring until everyone has all: rank r starts with block r. Steps [first, first + n - 1).
template <message_link L>
routine ring_gather(L link, void* data, std::size_t element_bytes, blocks cut, std::uint64_t first) {
  const int n = link.size(), r = link.rank();
  const int right = (r + 1) % n, left = (r + n - 1) % n;
  const std::size_t segment = ring_segment_bytes / element_bytes;
  for (int step = 0; step < n - 1; ++step) {
    const auto out = static_cast<std::size_t>((r + n - step) % n),
               in = static_cast<std::size_t>((r + 2 * n - step - 1) % n);
    for (std::size_t at_element = 0; at_element == 0 || at_element < cut.longest(); at_element += segment) {
      const auto part = [&](std::size_t b) {
        return std::min(segment, cut.size(b) - std::min(at_element, cut.size(b))) * element_bytes;
      };
      const auto place = [&](std::size_t b) { return at(data, (cut.begin(b) + at_element) * element_bytes); };
      const auto tag = first + static_cast<std::uint64_t>(step);
      auto sending = link.send(right, tag, {place(out), part(out)});
      co_await link.recv(left, tag, {place(in), part(in)});
      co_await sending;
    }
  }
}

}  // namespace detail

/// All-reduce as reduce-scatter and all-gather around a ring. Any rank count, any count.
/// 2(n-1) steps, 2(n-1)/n of the bytes sent per rank: the least possible (Patarasuk and Yuan, 2009).
template <message_link L>
routine ring_all_reduce(L link, all_reduce_args a) {
  const std::size_t size = a.out.element_bytes;
  const auto n = static_cast<std::size_t>(link.size());
  const blocks cut{a.out.count, n};
  const auto r = static_cast<std::size_t>(link.rank());
  copy_bytes(a.out.data, a.in.data, a.out.bytes());
  co_await detail::ring_reduce(link, a.out.data, size, cut, a.op, 0);
  if (a.op.finish) a.op.finish(at(a.out.data, cut.begin(r) * size), cut.size(r), link.size());
  co_await detail::ring_gather(link, a.out.data, size, cut, n);
}

/// Reduce-scatter around a ring, over a copy of the input. n-1 steps, (n-1)/n of the input's bytes sent per rank.
template <message_link L>
routine ring_reduce_scatter(L link, reduce_scatter_args a) {
  const std::size_t size = a.out.element_bytes;
  scratch work(a.in.bytes());
  if (!work) co_await link.refuse({errc::out_of_resources});
  copy_bytes(work.data(), a.in.data, a.in.bytes());
  const auto r = static_cast<std::size_t>(link.rank());
  co_await detail::ring_reduce(link, work.data(), size, blocks{a.in.count, static_cast<std::size_t>(link.size())}, a.op,
                               0);
  copy_bytes(a.out.data, at(work.data(), r * a.out.bytes()), a.out.bytes());
  if (a.op.finish) a.op.finish(a.out.data, a.out.count, link.size());
}

/// All-gather around a ring. n-1 steps, (n-1) blocks sent per rank.
template <message_link L>
routine ring_all_gather(L link, all_gather_args a) {
  const auto r = static_cast<std::size_t>(link.rank());
  copy_bytes(at(a.out.data, r * a.in.bytes()), a.in.data, a.in.bytes());
  co_await detail::ring_gather(link, a.out.data, a.out.element_bytes,
                               blocks{a.out.count, static_cast<std::size_t>(link.size())}, 0);
}

}  // namespace tutti::algo
