#pragma once
#include <cstddef>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// All-to-all by pairs: in step s the ranks whose numbers add up to s, modulo n, exchange their blocks. n steps, one of
/// them with oneself; every block is one message, straight from and into place (see Thakur, Rabenseifner and Gropp,
/// 2005). A rank that calls in place, which the others need not do, receives into temporary memory for one block, since
/// the block in its place is still being sent.
template <message_link L>
routine pairwise_all_to_all(L link, all_to_all_args a) {
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes;
  const bool in_place = a.in_blocks.equal() && a.in.data == a.out.data && a.in.bytes() != 0;
  scratch room(link, in_place && n > 1 ? a.in_blocks.longest() * element : 0);
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
    auto sending = link.send(peer, 0, out);
    co_await link.recv(peer, 0, in_place ? room.first(in.size()) : in);
    co_await sending;
    if (in_place) copy_bytes(in.data(), room.data(), in.size());
  }
}

}  // namespace tutti::algo
