#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/fingerprint.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/lane.hpp>
#include <tutti/transport/odd_message.hpp>

namespace tutti::algo::detail {

/// What ends an operation in which a rank has sent so many bytes to one with room for another length.
template <transport T, class Args>
status other_length(const lane<T>& lane, const Args& a, int rank, std::size_t bytes) noexcept {
  const std::uint16_t call = call_of(lane.sequence(), a).brief();
  status why = odd_message{call, call, bytes}.failure();
  why.peer = lane.members().world_rank(rank);
  return why;
}

}  // namespace tutti::algo::detail
