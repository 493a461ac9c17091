#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/message/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Broadcast along a chain of ranks, for large messages: each rank sends a chunk on as soon as it has received it, so
/// all links are busy at once and no rank sends the bytes more than once. Any number of ranks. n - 2 + N / 256 KiB
/// steps, N bytes sent per rank (pipelined chain; see Pješivac-Grbović et al., Performance analysis of MPI collective
/// operations, 2007).
template <message_link L>
routine chain_broadcast(L link, broadcast_args a) {
  const int n = link.size(), place = (link.rank() - a.root + n) % n;
  const int before = (link.rank() + n - 1) % n, next = (link.rank() + 1) % n;
  const std::span<std::byte> data{static_cast<std::byte*>(a.data.data), a.data.bytes()};
  const std::size_t chunks = chunk_count(data.size());
  detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
  for (std::size_t i = 0; i < chunks; ++i) {
    if (place != 0) {
      receives.begin_before((std::min)(chunks, i + chunks_ahead),
                            [&](std::size_t k) { return link.recv(before, 0, nth_chunk(data, k)); });
      auto& arrival = receives[i];
      co_await arrival;
    }
    if (place + 1 < n) co_await link.send(next, 0, nth_chunk(data, i));
  }
}

}  // namespace tutti::algo
