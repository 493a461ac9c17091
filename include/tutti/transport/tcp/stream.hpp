#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tutti/core/status.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/transport/tcp/connection.hpp>
#include <tutti/transport/tcp/control_message.hpp>
#include <tutti/transport/tcp/receive_buffer.hpp>
#include <tutti/transport/tcp/route.hpp>
#include <tutti/transport/tcp/segment_header.hpp>

namespace tutti {

/// Byte stream over TCP. Each of its rails is a pair of connections, one opened by each side, so that two ranks that
/// connect at once need not agree on one. A side writes its stream to the connections that it opened, and control
/// messages to the others; short segments of the stream may go there, too (see way_chooser). Several rails share the
/// stream. Its keeper brings the connections, watches them, and decides when the peer is lost. All calls are made under
/// the engine's lock; none blocks.
class tcp_stream {
  using receive_buffer = detail::receive_buffer;
  using piece = detail::piece;
  using tcp_connection = detail::tcp_connection;
  using control_message = detail::control_message;
  using way = detail::way;

 public:
  /// Side that opened a connection.
  enum class side : std::uint8_t { ours, theirs };

  /// Owner of the connections of byte streams.
  class keeper {
   public:
    virtual void open(int peer) noexcept = 0;                         ///< a transfer with the peer begins: connect
    virtual void watch(int peer, int rail, side s) noexcept = 0;      ///< wanted() of the connection has changed
    virtual void noticed(int peer, int rail) noexcept = 0;            ///< next_notice() has a message, or the end
    virtual void broken(int peer, int rail, int error) noexcept = 0;  ///< a connection ended; 0: the peer closed it

   protected:
    ~keeper() = default;
  };

  using ending = receive_buffer::ending;

  tcp_stream(keeper& k, int rank, int peer, int rails = 1)
      : keeper_(&k), peer_(peer), rails_(static_cast<std::size_t>(rails)), ways_(rank, peer, rails) {}
  tcp_stream(const tcp_stream&) = delete;
  tcp_stream& operator=(const tcp_stream&) = delete;

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    if (left_out_ == 0 && head_left_ == 0 && !begin_piece(a.size(), b)) return 0;
    a = a.first((std::min)(a.size(), left_out_));
    b = b.first((std::min)(b.size(), left_out_ - a.size()));
    const std::size_t sent = put(writing_, {std::span<const std::byte>{head_out_}.last(head_left_), a, b});
    const std::size_t of_head = (std::min)(sent, head_left_);
    head_left_ -= of_head;
    left_out_ -= sent - of_head;
    if (head_left_ == 0 && left_out_ == 0) writing_ = next_out_;
    return sent - of_head;
  }

  /// Reads straight into `into`. Bytes that arrived behind it are kept for the next reads, so that a small message
  /// costs one system call.
  std::size_t read(std::span<std::byte> into) noexcept {
    while (arriving(reading_).in.what() != receive_buffer::head::body)
      if (!find_piece()) return 0;
    tcp_connection& r = arriving(reading_);
    std::size_t n = r.in.take(into);
    if (n == 0 && !into.empty() && may_look(r)) {
      n = fetch(reading_, into.size() < least_direct ? into.first(0) : into).direct;
      if (n == 0) n = r.in.take(into);
    }
    received_ += n;
    turn_page();
    return n;
  }

  [[nodiscard]] status failure() const noexcept { return failure_; }
  void open() noexcept {
    if (!std::exchange(opened_, true)) keeper_->open(peer_);
  }

  // The rest is called by the keeper.

  [[nodiscard]] int rails() const noexcept { return static_cast<int>(rails_.size()); }
  /// Returns the connection of a rail that this side opened.
  [[nodiscard]] const tcp_connection& at(int rail, side s) const noexcept {
    const auto& t = rails_[static_cast<std::size_t>(rail)];
    return s == side::ours ? t.ours : t.theirs;
  }

  /// Takes over a connection of a rail. May throw bad_alloc.
  void use(os::fd connection, int rail, side s) {
    own(rail, s).use(std::move(connection));
    readable_ = true;
  }
  /// Makes the next read() try the socket.
  void try_now() noexcept { readable_ = true; }
  /// Handles arrivals on the connection of a rail that the peer opened. If the stream has not come to this connection
  /// yet, or nobody has read what was there before, it is held: it need not be watched until the keeper is told.
  /// Segments that go against a stream are read ahead with the control messages.
  void arrived(int rail) noexcept {
    const way w{rail, false};
    tcp_connection& r = arriving(w);
    if (r.in.what() == receive_buffer::head::nothing && w != reading_) {
      if (r.can_read()) (void)fetch(w, {});  // also finds its end
      return;
    }
    r.held = w != reading_ || std::exchange(readable_, true);
  }
  /// Writes what was kept for a connection, which has room again.
  void room(int rail, side s) noexcept { own(rail, s).flush(); }
  /// Sets failure(), unless it is set.
  void fail(status why) noexcept {
    if (failure_.ok()) failure_ = why;
  }

  /// Returns true if nothing of the peer's stream can come any more.
  [[nodiscard]] bool stream_ended() const noexcept {
    for (const roads& t : rails_)
      if (t.theirs.can_read()) return false;
    return true;
  }
  /// Returns the bytes of messages that were read.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Returns the number of connections that work, of both sides.
  [[nodiscard]] int standing() const noexcept {
    int n = 0;
    for (const roads& t : rails_) n += t.ours.stands() + t.theirs.can_read();
    return n;
  }

  /// Takes the next control message of the peer on a rail; notices() tells whether more may come.
  std::optional<control_message> next_notice(int rail = 0) noexcept {
    const way w{rail, true};
    tcp_connection& r = arriving(w);
    do {
      if (dropping_) r.in.skip();
      if (const auto n = r.in.take_notice()) return n;
      if (r.in.end() == ending::spoilt) spoilt(w);
    } while (r.can_read() && fetch(w, {}).bytes != 0);
    return std::nullopt;
  }
  [[nodiscard]] ending notices(int rail = 0) const noexcept { return at(rail, side::ours).in.end(); }

  /// Writes a control message on every rail, so that each is seen to be alive.
  void tell(const control_message& n) noexcept {
    for (int k = 0; k < rails(); ++k) tell(n, k);
  }
  void tell(const control_message& n, int rail) noexcept {
    const control_message::encoded bytes = n.encode();
    put({rail, true}, {std::span<const std::byte>{bytes}, {}, {}});
  }

  /// Stops delivering the stream: what comes of it is dropped.
  void drop() noexcept { dropping_ = true; }
  /// Drops what has arrived on a rail, and all that follows.
  void discard(int rail = 0) noexcept {
    drop();
    tcp_connection& r = own(rail, side::theirs);
    if (r.can_read()) r.in.discard(r.socket.native());
  }
  /// Writes nothing more, and drops what comes, even on connections that were held.
  void leave() noexcept {
    drop();
    for (roads& t : rails_)
      for (tcp_connection* r : {&t.ours, &t.theirs}) {
        r->held = false;
        r->finish_writing();
      }
  }
  /// Returns true if all that was written to the connections of this side has reached the peer's kernel.
  [[nodiscard]] bool delivered(side s) const noexcept {
    for (int k = 0; k < rails(); ++k)
      if (!at(k, s).delivered()) return false;
    return true;
  }
  void close() noexcept {
    for (roads& t : rails_) {
      t.ours.socket.reset();
      t.theirs.socket.reset();
    }
  }

 private:
  static constexpr std::size_t least_direct = 257;  // fewer bytes are read ahead, with what follows them

  struct roads {
    tcp_connection ours, theirs;
  };
  [[nodiscard]] tcp_connection& own(int k, side s) noexcept {
    roads& t = rails_[static_cast<std::size_t>(k)];
    return s == side::ours ? t.ours : t.theirs;
  }
  [[nodiscard]] tcp_connection& arriving(way w) noexcept { return own(w.rail, w.against ? side::ours : side::theirs); }
  [[nodiscard]] tcp_connection& written(way w) noexcept { return own(w.rail, w.against ? side::theirs : side::ours); }

  /// Begins a segment: decides about its length and about the connection of the next one. Returns false if it cannot be
  /// written now.
  bool begin_piece(std::size_t header, std::span<const std::byte> message) noexcept {
    const std::size_t bytes = header + message.size();
    if (bytes == 0 || !written(writing_).can_write()) return false;
    if (writing_.against && bytes > detail::way_chooser::most_against) {
      const way back = ways_.after(writing_, 0);
      const piece::encoded empty = piece{0, back.number(), read_against_}.encode();
      put(writing_, {std::span<const std::byte>{empty}, {}, {}});
      writing_ = back;
      if (!written(writing_).can_write()) return false;
    }
    left_out_ = (std::min)(bytes, ways_.most());
    next_out_ = ways_.after(writing_, left_out_);
    if (!written(next_out_).can_write()) next_out_.against = false;
    const bool padded = left_out_ > detail::way_chooser::most_against &&
                        piece::copied_slowly_behind(piece::encoded_bytes + header, message.data());
    const piece::encoded head = piece{.bytes = static_cast<std::uint32_t>(left_out_),
                                      .next = next_out_.number(),
                                      .read = read_against_,
                                      .padded = padded}
                                    .encode();
    head_left_ = piece::head_bytes(head.data());
    std::memcpy(head_out_ + sizeof head_out_ - head_left_, head.data(), head.size());
    return true;
  }

  /// Writes a segment or a control message. Returns the number of bytes that were written or kept.
  std::size_t put(way w, const tcp_connection::parts& p) noexcept {
    tcp_connection& r = written(w);
    const os::io_result sent = w.against ? r.write_whole(p) : r.write(p);
    if (sent.closed)
      keeper_->broken(peer_, w.rail, sent.error);
    else if (r.full || r.keeps_some())
      keeper_->watch(peer_, w.rail, w.against ? side::theirs : side::ours);
    return sent.bytes;
  }

  [[nodiscard]] bool may_look(const tcp_connection& r) const noexcept {
    // After a failure, what the peer sent before is still read: its last message may complete an operation.
    return r.can_read() && (readable_ || !failure_.ok());
  }
  /// Looks for the next segment where the stream is read; returns false if there is none for now.
  bool find_piece() noexcept {
    tcp_connection& r = arriving(reading_);
    if (r.in.what() == receive_buffer::head::nothing && may_look(r)) (void)fetch(reading_, {});
    if (reading_.against && r.in.what() == receive_buffer::head::notice) keeper_->noticed(peer_, reading_.rail);
    if (r.in.what() == receive_buffer::head::nothing) return false;
    const auto p = r.in.take_piece();
    if (!p || p->next >= 2 * rails()) {
      spoilt(reading_);
      return false;
    }
    ways_.heard(reading_, p->read);
    next_in_ = way::of(p->next);
    turn_page();
    return true;
  }
  /// Goes to the connection of the next segment once this one has been read.
  void turn_page() noexcept {
    tcp_connection& r = arriving(reading_);
    if (r.in.left() != 0) return;
    if (reading_.against) ++read_against_;
    const way here = std::exchange(reading_, next_in_);
    if (here == reading_) return;
    readable_ = true;
    if (here.against && r.in.what() == receive_buffer::head::notice) keeper_->noticed(peer_, here.rail);
    if (r.in.what() == receive_buffer::head::nothing && std::exchange(r.held, false)) watch(here);
  }
  /// Receives from a connection, and tells the keeper if it has ended.
  receive_buffer::received fetch(way w, std::span<std::byte> direct) noexcept {
    tcp_connection& r = arriving(w);
    const auto got = r.in.receive(r.socket.native(), direct);
    if (w == reading_) readable_ = got.filled;
    if (!got.filled && std::exchange(r.held, false)) watch(w);
    if (!r.can_read()) {
      keeper_->broken(peer_, w.rail, got.error);
      if (w.against) keeper_->noticed(peer_, w.rail);
    }
    return got;
  }
  void watch(way w) noexcept { keeper_->watch(peer_, w.rail, w.against ? side::ours : side::theirs); }
  void spoilt(way w) noexcept {
    arriving(w).in.spoil();
    fail({errc::protocol, 0, peer_, 0});
    watch(w);
  }

  keeper* keeper_;
  int peer_;
  bool opened_ = false, readable_ = false, dropping_ = false;
  status failure_{};
  std::vector<roads> rails_;
  // Writing: the current segment, and the connection of the next one.
  detail::way_chooser ways_;
  way writing_{}, next_out_{};
  std::size_t left_out_ = 0, head_left_ = 0;
  std::byte head_out_[piece::encoded_bytes + piece::padding_bytes] = {};  // the last head_left_ bytes are not sent yet
  // Reading: the same.
  way reading_{}, next_in_{};
  std::uint16_t read_against_ = 0;  // segments, modulo 2^16
  std::uint64_t received_ = 0;
};

}  // namespace tutti
