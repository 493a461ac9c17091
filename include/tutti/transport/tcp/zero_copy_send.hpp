#pragma once
#include <cstddef>
#include <utility>

#include <tutti/transport/messaging/unexpected_queue.hpp>
#include <tutti/transport/tcp/segment_header.hpp>

namespace tutti::detail {

/// Zero-copy sending over a byte stream between processes of one machine. The writer of a long segment gives the kernel
/// its memory instead of a copy (os::page_sender), and goes on when the reader reports that it has read the segment.
/// The end of a message is always copied, after that report: a receiver therefore never completes a message whose
/// buffer the sender has given up, and perhaps reused, after an error.
class loans {
 public:
  /// Bytes of a message from which on it is lent. One of up to 256 KiB may be unexpected, and must not wait until it is
  /// read. If both directions are used at once, shorter loans than `least_both_ways` take longer than copies, between
  /// cores that share a cache.
  static constexpr std::size_t least = early_places::largest + 1, least_both_ways = std::size_t{1} << 20;
  /// Bytes at the end of a message that are copied.
  static constexpr std::size_t kept_back = 64;

  /// Decides about the next segment, with `bytes` of a message. Returns true if it is lent.
  bool lend(std::size_t bytes) noexcept {
    return lent_ = bytes >= least && bytes >= (std::exchange(long_came_, false) ? least_both_ways : least);
  }
  /// Returns true if the last segment was lent and its reader has not reported yet that it was read.
  [[nodiscard]] bool lent() const noexcept { return lent_; }
  /// Records the report that the last segment was read.
  void was_read() noexcept { lent_ = false; }

  /// Records that a segment of the peer begins.
  void begins(const piece& p) noexcept {
    borrowed_ = p.lent;
    long_came_ = long_came_ || p.bytes >= least;
  }
  /// Records that it was read. Returns true if its writer waits for a report.
  [[nodiscard]] bool ends() noexcept { return std::exchange(borrowed_, false); }

 private:
  bool lent_ = false, borrowed_ = false;
  bool long_came_ = false;  // a long segment came since the last long one was written
};

}  // namespace tutti::detail
