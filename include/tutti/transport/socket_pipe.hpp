#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <tutti/core/status.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/tcp_notice.hpp>
#include <tutti/transport/tcp_sockets.hpp>

namespace tutti {

/// A pipe over two sockets: each side writes to the connection that it opened and reads from the one that the peer
/// opened, so that two ranks that connect at once need not agree on one. Against the stream travel only notices.
/// Its keeper brings the connections, watches them and decides when the peer is lost.
class socket_pipe {
 public:
  /// Whoever keeps the connections of pipes.
  class keeper {
   public:
    virtual void open(int peer) noexcept = 0;  ///< a transfer with the peer begins: connect
    virtual void full(int peer) noexcept = 0;  ///< a write was cut short: say writable-again through the poller
    virtual void dry(int peer) noexcept = 0;   ///< a stream that was held back is read again, to its end
    virtual void broken(int peer, int error) noexcept = 0;  ///< a connection ended; 0: the peer closed it

   protected:
    ~keeper() = default;
  };

  enum class ending : std::uint8_t { none, closed, cut };  ///< not yet; between two notices or frames; broken

  socket_pipe(keeper& k, int peer) noexcept : keeper_(&k), peer_(peer) {}
  socket_pipe(const socket_pipe&) = delete;
  socket_pipe& operator=(const socket_pipe&) = delete;

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    if (!out_ || out_ended_) return 0;
    const os::io_result r = send(a, b);
    full_ = r.bytes < a.size() + b.size();
    if (r.closed)
      end_of(out_ended_, r.error);
    else if (full_)
      keeper_->full(peer_);
    return r.bytes;
  }

  /// Straight into `into`; what came beyond it is kept for the next reads, so that a small message costs one call.
  std::size_t read(std::span<std::byte> into) noexcept {
    if (ahead_from_ != ahead_to_) {
      const std::size_t n = std::min(into.size(), ahead_to_ - ahead_from_);
      std::memcpy(into.data(), ahead_.get() + ahead_from_, n);
      ahead_from_ += n;
      return n;
    }
    // Once failed, what the peer sent before is still looked for: its last message may complete an operation.
    if (!in_ || in_ended_ || (!readable_ && failure_.ok())) return 0;
    // A header comes with its message, if that is small; the call for one buffer is the cheaper one.
    const std::size_t direct = into.size() <= small_bytes ? 0 : into.size();
    const std::array<iovec, 2> pieces{iovec{into.data(), into.size()}, iovec{ahead_.get(), read_ahead_bytes}};
    const os::io_result r = direct == 0 ? os::receive_some(in_.native(), std::span{ahead_.get(), read_ahead_bytes})
                                        : os::receive_some(in_.native(), pieces);
    readable_ = r.bytes == direct + read_ahead_bytes;
    if (!readable_ && std::exchange(held_, false)) keeper_->dry(peer_);
    if (r.closed) end_of(in_ended_, r.error);
    received_ += r.bytes;
    ahead_from_ = 0;
    ahead_to_ = r.bytes - std::min(r.bytes, direct);
    if (direct != 0 || r.bytes == 0) return r.bytes - ahead_to_;
    ahead_from_ = std::min(into.size(), ahead_to_);
    std::memcpy(into.data(), ahead_.get(), ahead_from_);
    return ahead_from_;
  }

  [[nodiscard]] status failure() const noexcept { return failure_; }
  void open() noexcept {
    if (!std::exchange(opened_, true)) keeper_->open(peer_);
  }

  // What follows is the keeper's.

  void write_to(os::fd connected) noexcept { out_ = std::move(connected); }
  void read_from(os::fd accepted) {
    ahead_ = std::make_unique_for_overwrite<std::byte[]>(read_ahead_bytes);  // NOLINT: no vector without its zeros
    in_ = std::move(accepted);
    readable_ = true;
    mute_ = false;
  }
  /// The next read tries the socket.
  void try_now() noexcept { readable_ = true; }
  /// There is something to read; false when there was before and nobody has read it: then dry() will be called.
  bool arrived() noexcept {
    held_ = std::exchange(readable_, true);
    return !held_;
  }
  /// From now on failure() is this.
  void fail(status why) noexcept {
    if (failure_.ok()) failure_ = why;
  }

  [[nodiscard]] int out() const noexcept { return out_.native(); }
  [[nodiscard]] int in() const noexcept { return in_.native(); }
  [[nodiscard]] bool full() const noexcept { return full_; }
  [[nodiscard]] bool out_ended() const noexcept { return out_ended_; }
  [[nodiscard]] bool in_ended() const noexcept { return in_ended_; }
  [[nodiscard]] ending notices() const noexcept { return notices_; }
  /// Bytes of messages.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

  /// The next notice of the peer, if there is one; notices() tells whether more may come.
  std::optional<tcp_notice> next_notice() noexcept {
    while (out_ && notices_ == ending::none) {
      const os::io_result r = os::receive_some(out_.native(), std::span{notice_in_}.subspan(notice_got_));
      notice_got_ += r.bytes;
      if (r.closed) {
        notices_ = r.error == 0 && notice_got_ == 0 ? ending::closed : ending::cut;
        keeper_->broken(peer_, r.error);
      }
      if (r.bytes == 0) break;
      if (notice_got_ < tcp_notice::encoded_bytes) continue;
      notice_got_ = 0;
      if (const auto n = tcp_notice::decode(notice_in_)) return n;
      notices_ = ending::cut;
      fail({errc::protocol, 0, peer_, 0});
    }
    return std::nullopt;
  }

  void tell(const tcp_notice& n) noexcept {
    if (!in_ || mute_) return;
    const tcp_notice::encoded bytes = n.encode();
    const os::io_result r = os::send_some(in_.native(), std::span<const std::byte>{bytes});
    // Only a peer that has not looked for hours leaves no room. A torn notice must not be followed by another.
    mute_ = r.bytes != bytes.size();
  }

  /// Takes what arrives and throws it away, some of it at a time; a socket that is closed with bytes unread would
  /// reset the connection, and with it what the peer has not read yet.
  void discard() noexcept {
    ahead_from_ = ahead_to_ = 0;
    for (int i = 0; i < 128 && in_ && !in_ended_; ++i) {
      const os::io_result r = os::receive_some(in_.native(), std::span{ahead_.get(), read_ahead_bytes});
      if (r.closed) in_ended_ = true;
      if (r.bytes == 0) break;
    }
  }

  /// Nothing more will be written; what was is still delivered.
  void finish_writing() noexcept {
    for (const int s : {out(), in()})
      if (s >= 0) detail::finish_writing(s);
    mute_ = out_ended_ = true;
  }

  /// Everything written has reached the peer's kernel: messages and notices, or nobody is there to take them.
  [[nodiscard]] bool messages_delivered() const noexcept {
    return !out_ || notices_ != ending::none || detail::is_delivered(out());
  }
  [[nodiscard]] bool notices_delivered() const noexcept { return !in_ || in_ended_ || detail::is_delivered(in()); }

  void close() noexcept {
    out_.reset();
    in_.reset();
  }

 private:
  // A small message and its header take one call; of a large one only this much is copied twice.
  static constexpr std::size_t read_ahead_bytes = 8 << 10;

  static constexpr std::size_t small_bytes = 256;

  // One buffer costs the kernel less than a list of two, by more than it takes to copy a small message.
  [[nodiscard]] os::io_result send(std::span<const std::byte> a, std::span<const std::byte> b) const noexcept {
    if (b.empty()) return os::send_some(out_.native(), a);
    if (a.size() + b.size() > small_bytes) {
      const std::array<iovec, 2> pieces{piece(a), piece(b)};
      return os::send_some(out_.native(), pieces);
    }
    std::array<std::byte, small_bytes> whole;
    std::memcpy(whole.data(), a.data(), a.size());
    std::memcpy(whole.data() + a.size(), b.data(), b.size());
    return os::send_some(out_.native(), std::span<const std::byte>{whole}.first(a.size() + b.size()));
  }

  static iovec piece(std::span<const std::byte> s) noexcept {
    return {const_cast<std::byte*>(s.data()), s.size()};  // NOLINT: an iovec serves both directions
  }
  void end_of(bool& direction, int error) noexcept {
    direction = true;
    keeper_->broken(peer_, error);
  }

  keeper* keeper_;
  int peer_;
  bool opened_ = false, readable_ = false, held_ = false, full_ = false, mute_ = false, out_ended_ = false,
       in_ended_ = false;
  ending notices_ = ending::none;
  status failure_{};
  os::fd out_, in_;
  std::unique_ptr<std::byte[]> ahead_;  // NOLINT: see read_from()
  std::size_t ahead_from_ = 0, ahead_to_ = 0;
  std::uint64_t received_ = 0;
  tcp_notice::encoded notice_in_{};
  std::size_t notice_got_ = 0;
};

}  // namespace tutti
