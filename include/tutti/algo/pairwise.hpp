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
/// which one is with oneself; every block is sent once, straight from and into place. In place, blocks change places in
/// segments of 256 KiB (see Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine pairwise_all_to_all(L link, all_to_all_args a) {
  constexpr std::size_t segment = piece_bytes;
  const int n = link.size(), r = link.rank();
  const std::size_t element = a.in.element_bytes;
  const bool in_place = a.in_blocks.equal() && a.in.data == a.out.data && a.in.bytes() != 0;
  scratch incoming(link, in_place && n > 1 ? std::min(segment, a.in_blocks.longest() * element) : 0);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  for (int s = 0; s < n; ++s) {
    const int peer = (s + n - r) % n;
    const auto block = static_cast<std::size_t>(peer);
    const std::span out{at(a.in.data, a.in_blocks.begin(block) * element), a.in_blocks.size(block) * element};
    const std::span in{at(a.out.data, a.out_blocks.begin(block) * element), a.out_blocks.size(block) * element};
    if (peer == r) {
      copy_bytes(in.data(), out.data(), in.size());
    } else if (!in_place) {
      auto sending = link.send(peer, 0, out);
      co_await link.recv(peer, 0, in);
      co_await sending;
    } else {
      for (std::size_t done = 0; done == 0 || done < in.size(); done += segment) {
        const std::size_t bytes = piece_of(in.size(), done, segment);
        auto sending = link.send(peer, 0, out.subspan(done, bytes));
        co_await link.recv(peer, 0, incoming.first(bytes));
        co_await sending;
        copy_bytes(in.data() + done, incoming.data(), bytes);
      }
    }
  }
}

}  // namespace tutti::algo
