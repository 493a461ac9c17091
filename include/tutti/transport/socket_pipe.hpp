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
#include <vector>

#include <tutti/core/status.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/socket_track.hpp>
#include <tutti/transport/stripe.hpp>
#include <tutti/transport/tcp_notice.hpp>

namespace tutti {

/// A pipe over two sockets: each side writes to the connection that it opened and reads from the one that the peer
/// opened, so that two ranks that connect at once need not agree on one. Against the stream travel only notices.
/// With several tracks of two sockets each the stream is dealt out to them in stripes; their number is the same at both
/// ends. Its keeper brings the connections, watches them and decides when the peer is lost.
class socket_pipe {
 public:
  /// Whoever keeps the connections of pipes.
  class keeper {
   public:
    virtual void open(int peer) noexcept = 0;             ///< a transfer with the peer begins: connect
    virtual void full(int peer, int track) noexcept = 0;  ///< a write was cut short: say writable-again by the poller
    virtual void dry(int peer, int track) noexcept = 0;   ///< a stream that was held back is read again, to its end
    virtual void broken(int peer, int track, int error) noexcept = 0;  ///< a connection ended; 0: the peer closed it

   protected:
    ~keeper() = default;
  };

  using ending = socket_track::ending;

  socket_pipe(keeper& k, int peer, int tracks = 1)
      : keeper_(&k), peer_(peer), tracks_(static_cast<std::size_t>(tracks)), writing_(tracks), reading_(tracks) {}
  socket_pipe(const socket_pipe&) = delete;
  socket_pipe& operator=(const socket_pipe&) = delete;

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    const int track = writing_.connection();
    socket_track& t = at(track);
    if (!t.out || t.out_ended) return 0;
    a = a.first(std::min(a.size(), writing_.left()));
    b = b.first(std::min(b.size(), writing_.left() - a.size()));
    const os::io_result r = send(t.out.native(), a, b);
    t.full = r.bytes < a.size() + b.size();
    if (r.closed)
      end_of(track, t.out_ended, r.error);
    else if (t.full)
      keeper_->full(peer_, track);
    writing_.advance(r.bytes);
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
    const int track = reading_.connection();
    socket_track& t = at(track);
    // Once failed, what the peer sent before is still looked for: its last message may complete an operation.
    if (!t.in || t.in_ended || (!readable_ && failure_.ok())) return 0;
    // A header comes with its message, if that is small; the call for one buffer is the cheaper one.
    const std::size_t direct = into.size() <= small_bytes ? 0 : std::min(into.size(), reading_.left());
    const std::size_t beyond = std::min(read_ahead_bytes, reading_.left() - direct);
    const std::array<iovec, 2> pieces{iovec{into.data(), direct}, iovec{ahead_.get(), beyond}};
    const os::io_result r = direct == 0 ? os::receive_some(t.in.native(), std::span{ahead_.get(), beyond})
                                        : os::receive_some(t.in.native(), pieces);
    readable_ = r.bytes == direct + beyond;
    if (!readable_ && std::exchange(t.held, false)) keeper_->dry(peer_, track);
    if (r.closed) end_of(track, t.in_ended, r.error);
    received_ += r.bytes;
    reading_.advance(r.bytes);
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

  [[nodiscard]] int tracks() const noexcept { return static_cast<int>(tracks_.size()); }
  [[nodiscard]] const socket_track& track(int k) const noexcept { return tracks_[static_cast<std::size_t>(k)]; }

  void write_to(os::fd connected, int track = 0) noexcept { at(track).out = std::move(connected); }
  void read_from(os::fd accepted, int track = 0) {
    if (!ahead_) ahead_ = std::make_unique_for_overwrite<std::byte[]>(read_ahead_bytes);  // NOLINT: no vector's zeros
    at(track).read_from(std::move(accepted));
    readable_ = true;
  }
  /// The next read tries the socket.
  void try_now() noexcept { readable_ = true; }
  /// There is something to read; false when nobody has read what was there before, or the stream has not come to this
  /// track yet: it need not be watched until dry() is called.
  bool arrived(int track = 0) noexcept {
    socket_track& t = at(track);
    t.held = track != reading_.connection() || std::exchange(readable_, true);
    return !t.held;
  }
  /// From now on failure() is this.
  void fail(status why) noexcept {
    if (failure_.ok()) failure_ = why;
  }

  /// Where the stream is read and written now; -1 for a connection that is not there yet.
  [[nodiscard]] int out() const noexcept { return track(writing_.connection()).out.native(); }
  [[nodiscard]] int in() const noexcept { return track(reading_.connection()).in.native(); }
  [[nodiscard]] bool full() const noexcept { return track(writing_.connection()).full; }
  [[nodiscard]] bool out_ended() const noexcept { return track(writing_.connection()).out_ended; }
  [[nodiscard]] bool in_ended() const noexcept { return track(reading_.connection()).in_ended; }
  /// Bytes of messages.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Connections of both directions that stand.
  [[nodiscard]] int standing() const noexcept {
    int n = 0;
    for (const socket_track& t : tracks_) n += t.can_write() + t.can_read();
    return n;
  }

  /// The next notice of the peer on a track, if there is one; notices() tells whether more may come.
  std::optional<tcp_notice> next_notice(int track = 0) noexcept {
    socket_track& t = at(track);
    if (t.notices() != ending::none) return std::nullopt;
    int error = 0;
    auto n = t.next_notice(error);
    if (t.said_nonsense())
      fail({errc::protocol, 0, peer_, 0});
    else if (t.notices() != ending::none)
      keeper_->broken(peer_, track, error);
    return n;
  }
  [[nodiscard]] ending notices(int k = 0) const noexcept { return track(k).notices(); }

  /// On every track, so that each is seen to be alive.
  void tell(const tcp_notice& n) noexcept {
    const tcp_notice::encoded bytes = n.encode();
    for (socket_track& t : tracks_) t.tell(bytes);
  }
  void tell(const tcp_notice& n, int track) noexcept { at(track).tell(n.encode()); }

  /// Reads what arrives on a track for nobody.
  void discard(int track = 0) noexcept {
    ahead_from_ = ahead_to_ = 0;
    at(track).discard({ahead_.get(), read_ahead_bytes});
  }
  void finish_writing() noexcept {
    for (socket_track& t : tracks_) t.finish_writing();
  }
  [[nodiscard]] bool messages_delivered() const noexcept {
    for (const socket_track& t : tracks_)
      if (!t.messages_delivered()) return false;
    return true;
  }
  [[nodiscard]] bool notices_delivered() const noexcept {
    for (const socket_track& t : tracks_)
      if (!t.notices_delivered()) return false;
    return true;
  }
  void close() noexcept {
    for (socket_track& t : tracks_) t.close();
  }

 private:
  // A small message and its header take one call; of a large one only this much is copied twice.
  static constexpr std::size_t read_ahead_bytes = 8 << 10;

  static constexpr std::size_t small_bytes = 256;

  // One buffer costs the kernel less than a list of two, by more than it takes to copy a small message.
  [[nodiscard]] static os::io_result send(int socket, std::span<const std::byte> a,
                                          std::span<const std::byte> b) noexcept {
    if (b.empty()) return os::send_some(socket, a);
    if (a.size() + b.size() > small_bytes) {
      const std::array<iovec, 2> pieces{piece(a), piece(b)};
      return os::send_some(socket, pieces);
    }
    std::array<std::byte, small_bytes> whole;
    std::memcpy(whole.data(), a.data(), a.size());
    std::memcpy(whole.data() + a.size(), b.data(), b.size());
    return os::send_some(socket, std::span<const std::byte>{whole}.first(a.size() + b.size()));
  }

  static iovec piece(std::span<const std::byte> s) noexcept {
    return {const_cast<std::byte*>(s.data()), s.size()};  // NOLINT: an iovec serves both directions
  }
  [[nodiscard]] socket_track& at(int track) noexcept { return tracks_[static_cast<std::size_t>(track)]; }
  void end_of(int track, bool& direction, int error) noexcept {
    direction = true;
    keeper_->broken(peer_, track, error);
  }

  keeper* keeper_;
  int peer_;
  bool opened_ = false, readable_ = false;
  status failure_{};
  std::vector<socket_track> tracks_;
  stripe_cursor writing_, reading_;
  std::unique_ptr<std::byte[]> ahead_;  // NOLINT: see read_from()
  std::size_t ahead_from_ = 0, ahead_to_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace tutti
