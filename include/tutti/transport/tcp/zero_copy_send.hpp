#pragma once
#include <cstddef>
#include <utility>

#include <tutti/transport/messaging/unexpected_queue.hpp>
#include <tutti/transport/tcp/segment_header.hpp>

namespace tutti::detail {

/// Which pieces of the streams of a pipe are lent. Between processes of a machine the writer of a long piece gives the
/// kernel its memory instead of a copy (os::page_sender), and goes on when the reader says that it has read the piece.
/// The end of a message is never lent: the writer's memory is its own again before it has written all, and nobody takes
/// for a whole message what its writer gave up, and perhaps overwrote, while it was lent.
class loans {
 public:
  /// Of a message. What its receiver may not have asked for, 256 KiB at most, must not wait to be read. In both
  /// directions at once shorter loans take longer than copies, between cores that share a cache.
  static constexpr std::size_t least = early_places::largest + 1, least_both_ways = std::size_t{1} << 20;
  static constexpr std::size_t kept_back = 64;

  /// Whether the next piece, with so much of a message, is lent.
  bool lend(std::size_t bytes) noexcept {
    return lent_ = bytes >= least && bytes >= (std::exchange(long_came_, false) ? least_both_ways : least);
  }
  /// The last piece was lent, and the reader has not said yet that it was read.
  [[nodiscard]] bool lent() const noexcept { return lent_; }
  void was_read() noexcept { lent_ = false; }

  /// A piece of the peer's begins.
  void begins(const piece& p) noexcept {
    borrowed_ = p.lent;
    long_came_ = long_came_ || p.bytes >= least;
  }
  /// It was read; true where its writer waits to hear that.
  [[nodiscard]] bool ends() noexcept { return std::exchange(borrowed_, false); }

 private:
  bool lent_ = false, borrowed_ = false;
  bool long_came_ = false;  // since the last long one went
};

}  // namespace tutti::detail
