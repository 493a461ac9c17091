#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <tutti/async/op_state.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

/// Operations that are one message between two ranks: send, recv, and recv from any rank.
namespace tutti::algo {

template <message_link L>
routine send_one(L& link, int peer, std::uint64_t tag, std::span<const std::byte> out) {
  co_await link.send(peer, tag, out);
}
template <message_link L>
routine recv_one(L& link, int peer, std::uint64_t tag, std::span<std::byte> in) {
  co_await link.recv(peer, tag, in);
}

/// Receives from any other rank of the group; that rank's number in the group becomes the value of `s`.
template <message_link L>
routine recv_any_one(L& link, const group& among, std::uint64_t tag, std::span<std::byte> in, op_state& s) {
  auto receiving = link.recv_any(among.members, tag, in);
  co_await receiving;
  const int from = among.rank_of(receiving.from());
  std::memcpy(s.value, &from, sizeof from);
}

}  // namespace tutti::algo
