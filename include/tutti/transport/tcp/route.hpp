#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/transport/tcp/segment_header.hpp>
#include <tutti/transport/tcp/stripe.hpp>

namespace tutti::detail {

/// How a piece of a stream goes to the peer: on the connection of a track that its writer opened, or on the one that
/// the reader opened, against the reader's own stream.
struct way {
  int rail = 0;
  bool against = false;

  friend bool operator==(const way&, const way&) = default;
  [[nodiscard]] std::uint8_t number() const noexcept { return static_cast<std::uint8_t>(2 * rail + against); }
  static way of(std::uint8_t number) noexcept { return {number / 2, number % 2 != 0}; }
};

/// Chooses the ways of one writer's pieces. On several tracks stripes go to each in turn. On one, short messages that
/// answer one another take its two connections in turn, each that by which the peer was heard last, so that no
/// acknowledgement travels alone; long ones gain little by that.
class way_chooser {
 public:
  /// The longest piece that goes against a stream, of a message of 8 KiB and its header, and how many may be there that
  /// the peer has not read. Nothing else holds them back, and notices travel there: they fill no buffer of the
  /// kernel's, and the peer reads notices that are behind them.
  static constexpr std::size_t most_against = (8 << 10) + 16;
  static constexpr int most_unread = 2;

  way_chooser(int rank, int peer, int rails) noexcept : rails_(rails), waits_(rank < peer), stripe_(rails) {}

  /// How long the next piece may be.
  [[nodiscard]] std::size_t most() const noexcept { return (std::min)(stripe_.left(), piece::most_bytes); }
  /// The way of what follows a piece of so many bytes that goes by `w`.
  way after(way w, std::size_t bytes) noexcept {
    stripe_.advance(bytes);
    if (w.against) ++went_;
    short_ones_ = bytes <= most_against ? short_ones_ + 1 : 0;
    const bool turns = rails_ == 1 && !w.against && short_ones_ >= enough_short_ones && in_step();
    if (turns) heard_ = false;
    return {stripe_.connection(), turns};
  }
  /// A piece of the peer came by `w`, which had read so many of those that went against its stream, modulo 2^16.
  void heard(way w, std::uint16_t read) noexcept {
    heard_ = true;
    heard_by_ = w;
    read_ = read;
  }

 private:
  // A long one that follows has to turn back first, which costs as much as a short one.
  static constexpr std::size_t enough_short_ones = 4;

  // Only in answer to something. If both sides took the same connection they would do so for ever: one of them waits.
  [[nodiscard]] bool in_step() const noexcept {
    return heard_ && (!waits_ || heard_by_.against) && static_cast<std::uint16_t>(went_ - read_) < most_unread;
  }

  int rails_;
  bool waits_;
  bool heard_ = false;          // something, since this side last went against the peer's stream
  way heard_by_{};              // the last
  std::uint16_t went_ = 0;      // against the peer's stream
  std::uint16_t read_ = 0;      // of these
  std::size_t short_ones_ = 0;  // in a row
  stripe_cursor stripe_;
};

}  // namespace tutti::detail
