#pragma once
#include <utility>

#include <tutti/transport/road.hpp>

namespace tutti::detail {

/// When to acknowledge a short message over TCP. The kernel would do it in the call that reads the message, which takes
/// half as long as its way, unless what answers it takes the acknowledgement with it. Where nothing does, it is done
/// with the next look, for which nobody waits. Whether something will is taken to be as it was the last time; where it
/// was, some looks in vain tell otherwise; where epoll tells what has come, as among many peers, nobody looks in vain,
/// and what nothing answers is left to the kernel.
///
/// Long messages are the kernel's: their writer hears a few bytes before each, and took twice to three times as long
/// when those were acknowledged later.
class late_acknowledgement {
 public:
  static constexpr int patience = 2;

  void short_came(const road& by) noexcept {
    owed_ = &by;
    open_ = true;
    in_vain_ = 0;
  }
  void long_came() noexcept {
    owed_ = nullptr;
    open_ = false;
  }
  /// This rank wrote something, by whichever connection.
  void answered() noexcept {
    owed_ = nullptr;
    if (std::exchange(open_, false)) answers_ = in_vain_ < patience;
  }
  void looked_in_vain() noexcept {
    if (open_ && in_vain_ < patience && ++in_vain_ == patience) answers_ = false;
  }
  /// The connection on which to acknowledge before the next look; null for none.
  [[nodiscard]] const road* due() noexcept { return answers_ ? nullptr : std::exchange(owed_, nullptr); }

 private:
  const road* owed_ = nullptr;  // that brought what is not acknowledged
  bool open_ = false;           // what came last is not answered yet
  int in_vain_ = 0;             // looks since
  bool answers_ = false;
};

}  // namespace tutti::detail
