#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// All-to-all by pairs: in step s the ranks whose numbers add up to s, modulo n, exchange their blocks. n steps, of
/// which one is with oneself; every block is sent once (see Thakur, Rabenseifner and Gropp, 2005), in pieces of 256 KiB
/// or 1 MiB (see piece_for), straight from and into place. Ranks may differ in whether `in` is `out`: there two pieces
/// wait in temporary memory until those that they replace are sent.
template <message_link L>
routine pairwise_all_to_all(L link, all_to_all_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes, longest = a.in_blocks.longest() * element;
  const std::size_t slot = std::min(piece_for(link, longest), longest);
  const bool in_place = a.in_blocks.equal() && a.in.data == a.out.data && a.in.bytes() != 0;
  scratch room(link, in_place && n > 1 ? pieces_ahead * slot : 0);
  if (!room) co_await link.refuse({errc::out_of_resources});
  for (int s = 0; s < n; ++s) {
    const int peer = (s + n - r) % n;
    const auto block = static_cast<std::size_t>(peer);
    const std::span out{at(a.in.data, a.in_blocks.begin(block) * element), a.in_blocks.size(block) * element};
    const std::span in{at(a.out.data, a.out_blocks.begin(block) * element), a.out_blocks.size(block) * element};
    if (peer == r) {
      copy_bytes(in.data(), out.data(), in.size());
      continue;
    }
    const std::size_t leaves_by = piece_for(link, out.size()), comes_by = piece_for(link, in.size());
    const std::size_t leave = pieces_of(out.size(), leaves_by), come = pieces_of(in.size(), comes_by);
    const auto place = [&](std::size_t k) {
      const std::span<std::byte> piece = nth_piece(in, k, comes_by);
      return in_place ? std::span{room.data() + k % pieces_ahead * slot, piece.size()} : piece;
    };
    detail::in_flight<decltype(link.send(0, 0, {}))> sends;
    detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
    for (std::size_t i = 0; i < std::max(leave, come); ++i) {
      sends.begin_before(std::min(leave, i + pieces_ahead),
                         [&](std::size_t k) { return link.send(peer, 0, nth_piece(out, k, leaves_by)); });
      receives.begin_before(std::min(come, i + pieces_ahead),
                            [&](std::size_t k) { return link.recv(peer, 0, place(k)); });
      if (i < come) {
        auto& arrival = receives[i];  // g++ 12 would copy what a call returns
        co_await arrival;
      }
      if (i < leave) {
        auto& departure = sends[i];
        co_await departure;
      }
      if (in_place) copy_bytes(in.data() + i * comes_by, place(i).data(), place(i).size());
    }
  }
}

}  // namespace tutti::algo
