#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/transport/tcp/segment_header.hpp>
#include <tutti/transport/tcp/stripe.hpp>

namespace tutti::detail {

/// Route of a segment to the peer: the connection of a rail that its writer opened, or the one that the reader opened,
/// against the reader's own stream.
struct way {
  int rail = 0;
  bool against = false;

  friend bool operator==(const way&, const way&) = default;
  [[nodiscard]] std::uint8_t number() const noexcept { return static_cast<std::uint8_t>(2 * rail + against); }
  static way of(std::uint8_t number) noexcept { return {number / 2, number % 2 != 0}; }
};

/// Choice of the routes of one writer's segments. With several rails, stripes go to each in turn. With one rail, short
/// messages that answer one another take its two connections in turn. Directions then alternate on each connection, so
/// that a message carries the TCP acknowledgement of the one before; long messages gain little by that.
class way_chooser {
 public:
  /// Bytes of the longest segment that goes against a stream, a message of 8 KiB and its header, and number of them
  /// that the peer may not have read. Nothing else holds them back, and control messages go the same way: so they fill
  /// no buffer of the kernel's, and the peer reads control messages that are behind them.
  static constexpr std::size_t most_against = (8 << 10) + 16;
  static constexpr int most_unread = 2;

  way_chooser(int rank, int peer, int rails) noexcept : rails_(rails), waits_(rank < peer), stripe_(rails) {}

  /// Returns the most bytes that the next segment may have.
  [[nodiscard]] std::size_t most() const noexcept { return (std::min)(stripe_.left(), piece::most_bytes); }
  /// Returns the route of the segment that follows one of `bytes` bytes on route `w`; called once for each segment.
  way after(way w, std::size_t bytes) noexcept {
    stripe_.advance(bytes);
    if (w.against) ++went_;
    short_ones_ = bytes <= most_against ? short_ones_ + 1 : 0;
    const bool turns = rails_ == 1 && !w.against && short_ones_ >= enough_short_ones && in_step();
    if (turns) heard_ = false;
    return {stripe_.connection(), turns};
  }
  /// Records that a segment of the peer came by `w`. The peer had read `read` of the segments that went against its
  /// stream, modulo 2^16.
  void heard(way w, std::uint16_t read) noexcept {
    heard_ = true;
    heard_by_ = w;
    read_ = read;
  }

 private:
  // A long message must first turn back to this side's connection, which costs as much as a short message.
  static constexpr std::size_t enough_short_ones = 4;

  // A side goes against a stream only in answer to something. If both sides did so at once, they would take the same
  // connection for ever, so one of them waits.
  [[nodiscard]] bool in_step() const noexcept {
    return heard_ && (!waits_ || heard_by_.against) && static_cast<std::uint16_t>(went_ - read_) < most_unread;
  }

  int rails_;
  bool waits_;
  bool heard_ = false;          // something came since this side last went against the peer's stream
  way heard_by_{};              // the route of the last segment that came
  std::uint16_t went_ = 0;      // segments that went against the peer's stream
  std::uint16_t read_ = 0;      // segments that the peer has read of these
  std::size_t short_ones_ = 0;  // short segments in a row
  stripe_cursor stripe_;
};

}  // namespace tutti::detail
