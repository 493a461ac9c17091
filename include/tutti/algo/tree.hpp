#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Sends `data` down a binomial tree, in pieces so that levels overlap. Uses tag `step`.
template <message_link L>
routine tree_send_down(L link, std::span<std::byte> data, int root, std::uint64_t step) {
  const int n = link.size();
  const int me = (link.rank() - root + n) % n;  // rank in a tree whose root is 0
  const auto rank_of = [=](int v) { return (v + root) % n; };
  int mask = 1;
  while (mask < n && (me & mask) == 0) mask *= 2;  // my lowest set bit names my parent; the bits below it my children
  const std::size_t pieces = pieces_of(data.size());
  in_flight<decltype(link.recv(0, 0, {}))> receives;
  for (std::size_t i = 0, posted = 0; i < pieces; ++i) {
    if (me != 0) {
      for (; posted < std::min(pieces, i + pieces_ahead); ++posted)
        receives.begin(posted, [&] { return link.recv(rank_of(me - mask), step, piece_of(data, posted)); });
      auto& arrival = receives[i];
      co_await arrival;
    }
    for (int below = mask / 2; below > 0; below /= 2)
      if (me + below < n) co_await link.send(rank_of(me + below), step, piece_of(data, i));
  }
}

}  // namespace detail

/// Broadcast down a binomial tree. ceil(log2 n) levels; every rank receives the bytes once, the root sends them log2 n
/// times (see Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine tree_broadcast(L link, broadcast_args a) {
  co_await detail::tree_send_down(link, {static_cast<std::byte*>(a.data.data), a.data.bytes()}, a.root, 0);
}

/// The same where only the root knows the size: 8 bytes first, then the data. Two walks down the tree.
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
