#pragma once
#include <cstdint>
#include <span>

#include <tutti/core/deadline.hpp>
#include <tutti/os/poller.hpp>

namespace tutti::detail {

/// Poller of a rank's connections, whose events tell what a descriptor is for, and whose it is.
class tcp_poller {
 public:
  /// Expects this number of connections to each peer.
  explicit tcp_poller(int connections) : connections_(connections) {}

  /// Purpose of a descriptor.
  enum class source : std::uint8_t { listener, waker, bell, handshake, attempt, data, control };

  static constexpr std::uint64_t token(source s, int index = 0) noexcept {
    return static_cast<std::uint64_t>(s) << 32 | static_cast<std::uint32_t>(index);
  }
  static constexpr source source_of(const os::ready_event& e) noexcept { return static_cast<source>(e.token >> 32); }
  static constexpr int index_of(const os::ready_event& e) noexcept { return static_cast<int>(e.token & 0xffffffffU); }

  /// Returns the index of a connection in tokens; peer_of() and rail_of() reverse it.
  [[nodiscard]] int index(int peer, int rail) const noexcept { return peer * connections_ + rail; }
  [[nodiscard]] int peer_of(const os::ready_event& e) const noexcept { return index_of(e) / connections_; }
  [[nodiscard]] int rail_of(const os::ready_event& e) const noexcept { return index_of(e) % connections_; }

  /// Adds a descriptor. Throws error if the kernel refuses.
  void add(int descriptor, source s, int index = 0, os::interest what = os::interest::read) {
    poller_.add(descriptor, what, token(s, index));
  }
  /// Adds a descriptor that may be watched already, or changes what is watched. Returns false if the kernel refuses;
  /// only time is lost then, as sockets are also tried while a transfer with their peer waits.
  bool watch(int descriptor, source s, int index, os::interest what = os::interest::read) noexcept {
    return poller_.watch(descriptor, what, token(s, index));
  }
  void forget(int descriptor) noexcept { poller_.remove(descriptor); }

  [[nodiscard]] std::span<const os::ready_event> wait(duration limit) noexcept { return poller_.wait(limit); }
  [[nodiscard]] os::poller& underlying() noexcept { return poller_; }

 private:
  os::poller poller_;
  int connections_;
};

}  // namespace tutti::detail
