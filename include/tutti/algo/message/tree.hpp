#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/message/pipeline.hpp>
#include <tutti/algo/message/tree_place.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Sends `data` down a binomial tree, in chunks so that the levels overlap; as one message if there is one level. Uses
/// tag `step`.
template <message_link L>
routine tree_send_down(L link, std::span<std::byte> data, int root, std::uint64_t step) {
  const tree_place tree{link.size(), root, link.rank()};
  const std::size_t chunks = tree.n > 2 ? chunk_count(data.size()) : 1;
  const auto chunk = [=](std::size_t i) { return chunks > 1 ? nth_chunk(data, i) : data; };
  in_flight<decltype(link.recv(0, 0, {}))> receives;
  for (std::size_t i = 0; i < chunks; ++i) {
    if (tree.me != 0) {
      receives.begin_before((std::min)(chunks, i + chunks_ahead),
                            [&](std::size_t k) { return link.recv(tree.parent(), step, chunk(k)); });
      auto& arrival = receives[i];
      co_await arrival;
    }
    for (int mask = tree.lowest() / 2; mask > 0; mask /= 2)
      if (tree.me + mask < tree.n) co_await link.send(tree.rank_of(tree.me + mask), step, chunk(i));
  }
}

}  // namespace detail

/// Broadcast down a binomial tree. ceil(log2 n) levels; every rank receives the bytes once, the root sends them log2 n
/// times (see Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine tree_broadcast(L link, broadcast_args a) {
  co_await detail::tree_send_down(link, {static_cast<std::byte*>(a.data.data), a.data.bytes()}, a.root, 0);
}

/// Broadcast of a container whose size only the root knows: 8 bytes first, then the data, each down the tree.
template <message_link L>
routine tree_broadcast_sized(L link, broadcast_sized_args a) {
  std::uint64_t bytes = a.bytes;
  co_await detail::tree_send_down(link, std::as_writable_bytes(std::span{&bytes, 1}), a.root, 0);
  std::byte* data = a.data;
  if (link.rank() != a.root) {
    data = a.resize(a.container, bytes);
    if (bytes != 0 && !data) co_await link.refuse({errc::out_of_resources});
  }
  co_await detail::tree_send_down(link, {data, bytes}, a.root, 1);
}

}  // namespace tutti::algo
