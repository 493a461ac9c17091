#pragma once
#include <utility>

#include <tutti/transport/tcp/connection.hpp>

namespace tutti::detail {

/// When to acknowledge a short message over TCP. The kernel would do it in the call that reads the message, which takes
/// half as long as its way, unless what answers it takes the acknowledgement with it. Where nothing does, it is done
/// with the next look, for which nobody waits. Whether something will is taken to be as it was the last time; where it
/// was, some looks in vain tell otherwise; where epoll tells what has come, as among many peers, nobody looks in vain,
/// and what nothing answers is left to the kernel.
///
/// Long messages are the kernel's: their writer hears a few bytes before each, and took twice to three times as long
/// when those were acknowledged later.
class delayed_ack {
 public:
  static constexpr int patience = 2;

  void short_came(const tcp_connection& by) noexcept {
    owed_ = &by;
    looks_left_ = patience;
  }
  void long_came() noexcept {
    owed_ = nullptr;
    looks_left_ = 0;
  }
  /// This rank wrote something, by whichever connection.
  void answered() noexcept {
    owed_ = nullptr;
    if (std::exchange(looks_left_, 0) != 0) answers_ = true;
  }
  void looked_in_vain() noexcept {
    if (looks_left_ != 0 && --looks_left_ == 0) answers_ = false;
  }
  /// The connection on which to acknowledge before the next look; null for none.
  [[nodiscard]] const tcp_connection* due() noexcept { return answers_ ? nullptr : std::exchange(owed_, nullptr); }

 private:
  const tcp_connection* owed_ = nullptr;  // that brought what is not acknowledged
  int looks_left_ = 0;                    // for an answer to what came last
  bool answers_ = false;
};

}  // namespace tutti::detail
