#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/collectives.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/transport/messaging/message_mismatch.hpp>

namespace tutti::algo::detail {

/// Returns the error of an operation in which rank `from` sends `bytes` bytes to rank `to`, which has room for another
/// length.
template <transport T, class Args>
status other_length(const group_link<T>& link, const Args& a, int from, std::size_t bytes, int to,
                    std::size_t room) noexcept {
  const std::uint16_t call = call_of(link.sequence(), a).short_id();
  const group& all = link.members();
  return message_mismatch{call, call, bytes, room, all.context, link.sequence()}.failure(all.world_rank(from),
                                                                                         all.world_rank(to));
}

}  // namespace tutti::algo::detail
