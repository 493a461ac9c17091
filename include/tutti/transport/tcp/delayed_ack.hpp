#pragma once
#include <utility>

#include <tutti/transport/tcp/connection.hpp>

namespace tutti::detail {

/// Delayed acknowledgement of short messages over TCP. The kernel would acknowledge in the call that reads the message,
/// which adds half of the message's own latency, unless a reply carries the acknowledgement. If no reply is expected,
/// this rank acknowledges before its next poll, while nobody waits. A reply is expected if there was one the last time,
/// until a few polls in vain show that there is none. If epoll reports arrivals, as among many peers, no poll is in
/// vain, and the kernel acknowledges what is not replied to.
///
/// Long messages are left to the kernel. Their writer receives a few bytes before each, and took two to three times as
/// long when those were acknowledged later.
class delayed_ack {
 public:
  static constexpr int patience = 2;

  /// Records that a short message came on this connection.
  void short_came(const tcp_connection& by) noexcept {
    owed_ = &by;
    looks_left_ = patience;
  }
  /// Records that a long message comes.
  void long_came() noexcept {
    owed_ = nullptr;
    looks_left_ = 0;
  }
  /// Records that this rank wrote something, on any connection.
  void answered() noexcept {
    owed_ = nullptr;
    if (std::exchange(looks_left_, 0) != 0) answers_ = true;
  }
  /// Records a poll that found nothing.
  void looked_in_vain() noexcept {
    if (looks_left_ != 0 && --looks_left_ == 0) answers_ = false;
  }
  /// Returns the connection to acknowledge before the next poll, or null.
  [[nodiscard]] const tcp_connection* due() noexcept { return answers_ ? nullptr : std::exchange(owed_, nullptr); }

 private:
  const tcp_connection* owed_ = nullptr;  // the connection of the message that is not acknowledged
  int looks_left_ = 0;                    // polls in which a reply is still expected
  bool answers_ = false;
};

}  // namespace tutti::detail
