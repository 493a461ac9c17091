#pragma once
#include <cstddef>
#include <span>

#include <tutti/core/status.hpp>
#include <tutti/transport/shm/byte_ring.hpp>
#include <tutti/transport/shm/doorbell.hpp>

namespace tutti {

/// Byte stream to a rank of the same node: a ring buffer in shared memory for each direction. It never fails by itself;
/// the transport notices that a peer has died.
class ring_stream {
 public:
  ring_stream(const shm_control_block& area, int rank, int peer, detail::doorbell& bell) noexcept
      : out_(area.writer(rank, peer)), in_(area.reader(peer, rank)), bell_(&bell), peer_(peer) {}

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    const std::size_t n = out_.write(a, b);
    if (n != 0) bell_->ring(peer_);
    return n;
  }
  std::size_t read(std::span<std::byte> into) noexcept {
    const std::size_t n = in_.read(into);
    if (n != 0) bell_->ring(peer_);  // the peer may sleep until its ring has room again
    return n;
  }
  [[nodiscard]] status failure() const noexcept { return {}; }
  void open() noexcept {}

 private:
  detail::ring_writer out_;
  detail::ring_reader in_;
  detail::doorbell* bell_;
  int peer_;
};

}  // namespace tutti
