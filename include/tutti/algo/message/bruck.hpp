#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// All-gather for small blocks: in step k each rank sends the 2^k blocks that it has to the rank 2^k below it and
/// receives as many from the rank 2^k above it; a last pass copies the blocks to their places. Any number of ranks.
/// ceil(log2 n) steps, (n-1) blocks sent per rank, one more copy of the buffer (Bruck, Ho, Kipnis, Upfal and
/// Weathersby, 1997).
template <message_link L>
routine bruck_all_gather(L link, all_gather_args a) {
  const auto n = static_cast<std::size_t>(link.size()), r = static_cast<std::size_t>(link.rank());
  const std::size_t block = a.in.bytes();
  const std::size_t turned = r * block, all = n * block;
  scratch temporary(link, r == 0 ? 0 : all);
  if (!temporary) co_await link.refuse({errc::out_of_resources});
  std::byte* const data = r == 0 ? at(a.out.data, 0) : temporary.data();
  copy_bytes(data, a.in.data, block);
  // Position i holds the block of rank r + i.
  std::uint64_t step = 0;
  for (std::size_t have = 1; have < n; have *= 2, ++step) {
    const std::size_t bytes = (std::min)(have, n - have) * block;
    auto sending = link.send(static_cast<int>((r + n - have) % n), step, std::span<const std::byte>{data, bytes});
    co_await link.recv(static_cast<int>((r + have) % n), step, std::span{data + have * block, bytes});
    co_await sending;
  }
  if (r == 0) co_return;
  copy_bytes(at(a.out.data, turned), data, all - turned);
  copy_bytes(a.out.data, data + all - turned, turned);
}

}  // namespace tutti::algo
