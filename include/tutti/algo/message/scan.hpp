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

namespace detail {

/// Scans `data` over the ranks from `lowest` on. In the round of distance d every rank receives what the rank d below
/// it has folded, and sends its own to the rank d above it. Steps 1, 2, 4, …
template <message_link L>
routine scan_rounds(L link, int lowest, std::span<std::byte> data, std::size_t count, const reduction& with,
                    std::span<std::byte> incoming) {
  const int n = link.size(), r = link.rank();
  for (int d = 1; d < n; d *= 2) {
    const bool up = r + d < n, down = r - d >= lowest;
    const auto step = static_cast<std::uint64_t>(d);
    if (up && down) {
      auto telling = link.send(r + d, step, data);
      co_await link.recv(r - d, step, incoming);
      co_await telling;
    } else if (up) {
      co_await link.send(r + d, step, data);
    } else if (down) {
      co_await link.recv(r - d, step, incoming);
    }
    if (!down) continue;
    with.fold(data.data(), incoming.data(), count, with.context.data());
    copy_bytes(data.data(), incoming.data(), data.size());
  }
}

}  // namespace detail

/// Scan by recursive doubling, in chunks of 256 KiB and in rank order. ceil(log2 n) steps; N bytes sent per rank and
/// step (Hillis and Steele, 1986).
template <message_link L>
routine recursive_doubling_scan(L link, scan_args a) {
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element);
  scratch incoming(link, link.rank() == 0 ? 0 : (std::min)(segment, a.in.count) * element);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  copy_bytes(a.out.data, a.in.data, a.in.bytes());
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = (std::min)(segment, a.in.count - done), bytes = count * element;
    co_await detail::scan_rounds(link, 0, {at(a.out.data, done * element), bytes}, count, a.op, incoming.first(bytes));
  }
  if (a.op.finish) a.op.finish(a.out.data, a.in.count, link.rank() + 1, a.op.context.data());
}

/// Exclusive scan: every rank sends its operand to the next one, and all but the first scan what they received. One
/// step more than the scan.
template <message_link L>
routine recursive_doubling_exclusive_scan(L link, exclusive_scan_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element);
  scratch incoming(link, r == 0 ? 0 : (std::min)(segment, a.in.count) * element);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = (std::min)(segment, a.in.count - done), bytes = count * element;
    const std::span operand{at(a.in.data, done * element), bytes};
    if (r == 0) {
      if (n != 1) co_await link.send(1, 0, operand);
      continue;
    }
    const std::span out{at(a.out.data, done * element), bytes};
    if (r + 1 < n) {
      auto handing = link.send(r + 1, 0, operand);
      co_await link.recv(r - 1, 0, incoming.first(bytes));  // in place, the operand is still being sent
      co_await handing;
      copy_bytes(out.data(), incoming.data(), bytes);
    } else {
      co_await link.recv(r - 1, 0, out);
    }
    co_await detail::scan_rounds(link, 1, out, count, a.op, incoming.first(bytes));
  }
  if (r != 0 && a.op.finish) a.op.finish(a.out.data, a.in.count, r, a.op.context.data());
}

}  // namespace tutti::algo
