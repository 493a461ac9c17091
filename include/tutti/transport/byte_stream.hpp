#pragma once
#include <concepts>
#include <cstddef>
#include <span>

#include <tutti/core/status.hpp>

namespace tutti {

/// Byte stream to one peer, in both directions, that never blocks. write and read move as many bytes as they can and
/// return the number. 0 means "not now", or that the stream has failed, as failure() tells.
template <class P>
concept byte_stream = requires(P& p, std::span<const std::byte> out, std::span<std::byte> in) {
  { p.write(out, out) } noexcept -> std::same_as<std::size_t>;  // gathers header and payload
  { p.read(in) } noexcept -> std::same_as<std::size_t>;
  { p.failure() } noexcept -> std::same_as<status>;
  { p.open() } noexcept;  // called when a transfer with this peer begins: connects, if need be
};

}  // namespace tutti
