#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Reduce along the chain of ranks that ends at the root, in chunks of 256 KiB. Each rank folds its operand behind what
/// it receives and sends the result on, so operands keep the order of ranks, beginning with the rank after the root.
/// n-1 steps and one more for each further chunk; every rank sends N bytes.
template <message_link L>
routine chain_reduce(L link, reduce_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element);
  const std::size_t segments = std::max<std::size_t>((a.in.count + segment - 1) / segment, 1);
  const std::size_t slot = whole_lines((std::min)(segment, a.in.count) * element);
  const bool first = r == (a.root + 1) % n, last = r == a.root;
  scratch incoming(link, first ? 0 : chunks_ahead * slot);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  const auto count_of = [&](std::size_t i) { return (std::min)(segment, a.in.count - i * segment); };
  const auto arrived = [&](std::size_t i) {
    return std::span{incoming.data() + i % chunks_ahead * slot, count_of(i) * element};
  };
  detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
  for (std::size_t i = 0; i < segments; ++i) {
    const std::size_t done = i * segment, count = count_of(i), bytes = count * element;
    const std::byte* folded = at(a.in.data, done * element);
    if (!first) {
      receives.begin_before((std::min)(segments, i + chunks_ahead),
                            [&](std::size_t k) { return link.recv((r + n - 1) % n, 0, arrived(k)); });
      auto& arrival = receives[i];  // a reference: g++ 12 copies the result of a call in co_await
      co_await arrival;
      a.op.fold(folded, arrived(i).data(), count, a.op.context.data());
      folded = arrived(i).data();
    }
    if (last)
      copy_bytes(at(a.out.data, done * element), folded, bytes);
    else
      co_await link.send((r + 1) % n, 0, {folded, bytes});
  }
  if (last && a.op.finish) a.op.finish(a.out.data, a.in.count, n, a.op.context.data());
}

/// Scan along the chain of ranks, in chunks of 256 KiB and in rank order. n-1 steps and one more for each further
/// chunk; every rank sends N bytes.
template <message_link L>
routine chain_scan(L link, scan_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element);
  scratch incoming(link, r == 0 ? 0 : (std::min)(segment, a.in.count) * element);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = (std::min)(segment, a.in.count - done), bytes = count * element;
    const std::byte* folded = at(a.in.data, done * element);
    if (r != 0) {
      co_await link.recv(r - 1, 0, incoming.first(bytes));
      a.op.fold(folded, incoming.data(), count, a.op.context.data());
      folded = incoming.data();
    }
    std::byte* const out = at(a.out.data, done * element);
    copy_bytes(out, folded, bytes);
    if (r + 1 < n) co_await link.send(r + 1, 0, {out, bytes});
  }
  if (a.op.finish) a.op.finish(a.out.data, a.in.count, r + 1, a.op.context.data());
}

/// Exclusive scan along the chain of ranks, at the cost of chain_scan(). A rank's result is what it receives; it sends
/// that with its own operand folded in.
template <message_link L>
routine chain_exclusive_scan(L link, exclusive_scan_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element);
  const std::size_t temporary = r != 0 && r + 1 < n ? (std::min)(segment, a.in.count) * element : 0;
  scratch incoming(link, temporary), sum(link, temporary);
  if (!incoming || !sum) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = (std::min)(segment, a.in.count - done), bytes = count * element;
    const std::byte* const operand = at(a.in.data, done * element);
    std::byte* const out = at(a.out.data, done * element);
    if (r == 0) {
      if (n != 1) co_await link.send(1, 0, {operand, bytes});
    } else if (r + 1 == n) {
      co_await link.recv(r - 1, 0, {out, bytes});
    } else {
      co_await link.recv(r - 1, 0, incoming.first(bytes));
      copy_bytes(sum.data(), incoming.data(), bytes);
      a.op.fold(operand, sum.data(), count, a.op.context.data());
      copy_bytes(out, incoming.data(), bytes);  // may overwrite the operand, if in place
      co_await link.send(r + 1, 0, sum.first(bytes));
    }
  }
  if (r != 0 && a.op.finish) a.op.finish(a.out.data, a.in.count, r, a.op.context.data());
}

}  // namespace tutti::algo
