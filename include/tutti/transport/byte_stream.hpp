#pragma once
#include <concepts>
#include <cstddef>
#include <span>

#include <tutti/core/status.hpp>

namespace tutti {

/// A two-way stream of bytes to one peer that never blocks. write and read move what they can; 0 means "not now", or
/// that the pipe has failed, which failure() tells.
template <class P>
concept byte_stream = requires(P& p, std::span<const std::byte> out, std::span<std::byte> in) {
  { p.write(out, out) } noexcept -> std::same_as<std::size_t>;  // gathers header and payload
  { p.read(in) } noexcept -> std::same_as<std::size_t>;
  { p.failure() } noexcept -> std::same_as<status>;
  { p.open() } noexcept;  // a transfer with this peer has begun: connect, watch it
};

}  // namespace tutti
