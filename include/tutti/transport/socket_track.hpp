#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/tcp_notice.hpp>
#include <tutti/transport/tcp_sockets.hpp>

namespace tutti {

/// Two connections with a peer, one for what is written and one for what is read, and the notices against their
/// streams. A pipe has one track or several.
class socket_track {
 public:
  enum class ending : std::uint8_t { none, closed, cut };  ///< not yet; between two notices or frames; broken

  os::fd out, in;
  bool out_ended = false, in_ended = false;
  bool full = false;  ///< the last write was cut short
  bool held = false;  ///< what has arrived is not watched until it is read

  [[nodiscard]] ending notices() const noexcept { return notices_; }
  [[nodiscard]] bool can_write() const noexcept { return out && !out_ended && notices_ == ending::none; }
  [[nodiscard]] bool can_read() const noexcept { return in && !in_ended; }
  void read_from(os::fd accepted) noexcept {
    in = std::move(accepted);
    mute_ = false;
  }

  /// The next notice of the peer, if there is one; notices() tells whether more may come. errc::protocol for bytes that
  /// are none.
  std::optional<tcp_notice> next_notice(int& error) noexcept {
    while (out && notices_ == ending::none) {
      const os::io_result r = os::receive_some(out.native(), std::span{notice_in_}.subspan(notice_got_));
      notice_got_ += r.bytes;
      if (r.closed) {
        notices_ = r.error == 0 && notice_got_ == 0 ? ending::closed : ending::cut;
        error = r.error;
      }
      if (r.bytes == 0) break;
      if (notice_got_ < tcp_notice::encoded_bytes) continue;
      notice_got_ = 0;
      if (const auto n = tcp_notice::decode(notice_in_)) return n;
      notices_ = ending::cut;
      nonsense_ = true;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool said_nonsense() const noexcept { return nonsense_; }

  void tell(const tcp_notice::encoded& bytes) noexcept {
    if (!in || mute_) return;
    const os::io_result r = os::send_some(in.native(), std::span<const std::byte>{bytes});
    // Only a peer that has not looked for hours leaves no room. A torn notice must not be followed by another.
    mute_ = r.bytes != bytes.size();
  }

  /// Takes what arrives and throws it away, some of it at a time; a socket that is closed with bytes unread would
  /// reset the connection, and with it what the peer has not read yet.
  void discard(std::span<std::byte> bin) noexcept {
    for (int i = 0; i < 128 && in && !in_ended; ++i) {
      const os::io_result r = os::receive_some(in.native(), bin);
      if (r.closed) in_ended = true;
      if (r.bytes == 0) break;
    }
  }

  /// Nothing more will be written; what was is still delivered.
  void finish_writing() noexcept {
    for (const int s : {out.native(), in.native()})
      if (s >= 0) detail::finish_writing(s);
    mute_ = out_ended = true;
  }

  /// Everything written has reached the peer's kernel: messages and notices, or nobody is there to take them.
  [[nodiscard]] bool messages_delivered() const noexcept {
    return !out || notices_ != ending::none || detail::is_delivered(out.native());
  }
  [[nodiscard]] bool notices_delivered() const noexcept { return !in || in_ended || detail::is_delivered(in.native()); }

  void close() noexcept {
    out.reset();
    in.reset();
  }

 private:
  bool mute_ = false, nonsense_ = false;
  ending notices_ = ending::none;
  tcp_notice::encoded notice_in_{};
  std::size_t notice_got_ = 0;
};

}  // namespace tutti
