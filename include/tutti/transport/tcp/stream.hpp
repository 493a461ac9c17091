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
#include <tutti/transport/tcp/connection.hpp>
#include <tutti/transport/tcp/control_message.hpp>
#include <tutti/transport/tcp/receive_buffer.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/transport/tcp/segment_header.hpp>
#include <tutti/transport/tcp/stripe.hpp>

namespace tutti {

/// Byte stream over TCP. Each of its rails is a pair of connections, one opened by each side, so that two ranks that
/// connect at once need not agree on one. The one that the lower rank opens carries the streams of both sides, the
/// other one their control messages, which therefore wait neither for a message that is half sent nor for a peer that
/// reads no messages. Several rails share the stream. Its keeper brings the connections, watches them, and decides when
/// the peer is lost. All calls are made under the engine's lock; none blocks.
class tcp_stream {
  using receive_buffer = detail::receive_buffer;
  using segment_header = detail::segment_header;
  using tcp_connection = detail::tcp_connection;
  using control_message = detail::control_message;

 public:
  /// Role of a connection of a rail: carries the streams, or control messages.
  enum class role : std::uint8_t { data, control };
  static constexpr role roles[] = {role::data, role::control};

  /// Owner of the connections of byte streams.
  class keeper {
   public:
    virtual void open(int peer) noexcept = 0;                         ///< a transfer with the peer begins: connect
    virtual void watch(int peer, int rail, role r) noexcept = 0;      ///< wanted() of the connection has changed
    virtual void broken(int peer, int rail, int error) noexcept = 0;  ///< a connection ended; 0: the peer closed it

   protected:
    ~keeper() = default;
  };

  using ending = receive_buffer::ending;

  tcp_stream(keeper& k, int rank, int peer, int rails = 1)
      : keeper_(&k), peer_(peer), lower_(rank < peer), rails_(static_cast<std::size_t>(rails)), stripe_(rails) {}
  tcp_stream(const tcp_stream&) = delete;
  tcp_stream& operator=(const tcp_stream&) = delete;

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    if (left_out_ == 0 && head_left_ == 0 && !begin_segment(a.size(), b)) return 0;
    a = a.first((std::min)(a.size(), left_out_));
    b = b.first((std::min)(b.size(), left_out_ - a.size()));
    tcp_connection& c = data(writing_);
    const os::io_result sent = c.write({std::span<const std::byte>{head_out_}.last(head_left_), a, b});
    note_written(c, writing_, role::data, sent);
    const std::size_t of_head = (std::min)(sent.bytes, head_left_);
    head_left_ -= of_head;
    left_out_ -= sent.bytes - of_head;
    if (head_left_ == 0 && left_out_ == 0) writing_ = stripe_.connection();
    return sent.bytes - of_head;
  }

  /// Reads straight into `into`. Bytes that arrived behind it are kept for the next reads, so that a small message
  /// costs one system call.
  std::size_t read(std::span<std::byte> into) noexcept {
    while (data(reading_).in.what() != receive_buffer::head::body)
      if (!find_segment()) return 0;
    tcp_connection& c = data(reading_);
    std::size_t n = c.in.take(into);
    if (n == 0 && !into.empty() && may_look(c)) {
      n = fetch(reading_, into.size() < least_direct ? into.first(0) : into).direct;
      if (n == 0) n = c.in.take(into);
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
  [[nodiscard]] const tcp_connection& at(int rail, role r) const noexcept {
    const pair& t = rails_[static_cast<std::size_t>(rail)];
    return r == role::data ? t.data : t.control;
  }
  /// Return the role of the connections that this side opens, and that the peer opens.
  [[nodiscard]] role opened_here() const noexcept { return lower_ ? role::data : role::control; }
  [[nodiscard]] role opened_there() const noexcept { return lower_ ? role::control : role::data; }

  /// Takes over a connection of a rail, and writes the last word there if that was told before. May throw bad_alloc.
  void use(detail::tcp_socket connection, int rail, role r) {
    own(rail, r).use(std::move(connection));
    readable_ = true;
    if (r == role::control && last_) tell(*last_, rail);
    if (left_) own(rail, r).finish_writing();
  }
  /// Makes the next read() try the socket.
  void try_now() noexcept { readable_ = true; }
  /// Handles arrivals on the data connection of a rail. If the stream has not come to this connection yet, or nobody
  /// has read what was there before, it is held: it need not be watched until the keeper is told.
  void arrived(int rail) noexcept {
    tcp_connection& c = data(rail);
    if (rail != reading_ && c.in.what() == receive_buffer::head::nothing) {
      if (c.can_read()) (void)fetch(rail, {});  // also finds its end
      return;
    }
    c.held = rail != reading_ || std::exchange(readable_, true);
  }
  /// Sends what was written, however short.
  void push() noexcept {
    for (pair& t : rails_) t.data.push();
  }
  /// Writes what was kept for a connection, which has room again.
  void room(int rail, role r) noexcept { own(rail, r).flush(); }
  /// Sets failure(), unless it is set.
  void fail(status why) noexcept {
    if (failure_.ok()) failure_ = why;
  }

  /// Returns true if nothing of the peer's stream can come any more.
  [[nodiscard]] bool stream_ended() const noexcept {
    for (const pair& t : rails_)
      if (t.data.can_read()) return false;
    return true;
  }
  /// Returns the bytes of messages that were read.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Returns the number of connections that work, of both sides.
  [[nodiscard]] int standing() const noexcept {
    int n = 0;
    for (const pair& t : rails_) n += t.data.stands() + t.control.can_read();
    return n;
  }

  /// Takes the next control message of the peer on a rail; control_end() tells whether more may come.
  std::optional<control_message> next_control_message(int rail = 0) noexcept {
    tcp_connection& c = own(rail, role::control);
    for (;;) {
      if (const auto n = c.in.take_control_message()) return n;
      if (c.in.end() == ending::malformed) malformed(rail, role::control);
      if (!c.can_read()) return std::nullopt;
      const auto got = c.receive({});
      if (!c.can_read()) ended(rail, got.error);
      if (got.bytes == 0) return std::nullopt;
    }
  }
  [[nodiscard]] ending control_end(int rail = 0) const noexcept { return at(rail, role::control).in.end(); }

  /// Writes a control message on every rail, so that each is seen to be alive.
  void tell(const control_message& n) noexcept {
    for (int k = 0; k < rails(); ++k) tell(n, k);
  }
  void tell(const control_message& n, int rail) noexcept {
    const control_message::encoded bytes = n.encode();
    tcp_connection& c = own(rail, role::control);
    note_written(c, rail, role::control, c.write_whole(bytes));
  }

  /// Writes a control message on every rail, and on connections that come later, too.
  void tell_last(const control_message& n) noexcept {
    last_ = n;
    tell(n);
  }

  /// Drops what has arrived on the data connection of a rail.
  void discard(int rail = 0) noexcept {
    tcp_connection& c = data(rail);
    if (c.can_read()) c.discard();
  }
  /// Writes nothing more, even on connections that come later, and holds none.
  void leave() noexcept {
    left_ = true;
    for (int k = 0; k < rails(); ++k)
      for (const role r : roles) {
        own(k, r).held = false;
        own(k, r).finish_writing();
      }
  }
  /// Returns true if all that was written to the connections of a role has reached the peer's kernel.
  [[nodiscard]] bool delivered(role r) const noexcept {
    for (int k = 0; k < rails(); ++k)
      if (!at(k, r).delivered()) return false;
    return true;
  }
  void close() noexcept {
    for (pair& t : rails_) {
      t.data.close();
      t.control.close();
    }
  }

 private:
  static constexpr std::size_t least_direct = 257;  // fewer bytes are read ahead, with what follows them
  static constexpr std::size_t least_padded = (8 << 10) + 17;

  struct pair {
    tcp_connection data, control;
  };
  [[nodiscard]] tcp_connection& data(int rail) noexcept { return rails_[static_cast<std::size_t>(rail)].data; }
  [[nodiscard]] tcp_connection& own(int rail, role r) noexcept {
    return r == role::data ? data(rail) : rails_[static_cast<std::size_t>(rail)].control;
  }

  /// Begins a segment: decides about its length and about the rail of the next one. Returns false if it cannot be
  /// written now.
  bool begin_segment(std::size_t header, std::span<const std::byte> message) noexcept {
    const std::size_t bytes = header + message.size();
    if (bytes == 0 || !data(writing_).can_write()) return false;
    left_out_ = (std::min)({bytes, stripe_.left(), segment_header::most_bytes});
    stripe_.advance(left_out_);
    const bool padded = left_out_ >= least_padded &&
                        segment_header::copied_slowly_behind(segment_header::encoded_bytes + header, message.data());
    const segment_header::encoded head = segment_header{.bytes = static_cast<std::uint32_t>(left_out_),
                                                        .next = static_cast<std::uint8_t>(stripe_.connection()),
                                                        .padded = padded}
                                             .encode();
    head_left_ = segment_header::head_bytes(head.data());
    std::memcpy(head_out_ + sizeof head_out_ - head_left_, head.data(), head.size());
    return true;
  }
  void note_written(const tcp_connection& c, int rail, role r, const os::io_result& sent) noexcept {
    if (sent.closed)
      keeper_->broken(peer_, rail, sent.error);
    else if (c.full || c.keeps_some())
      keeper_->watch(peer_, rail, r);
  }

  [[nodiscard]] bool may_look(const tcp_connection& c) const noexcept {
    // After a failure, what the peer sent before is still read: its last message may complete an operation.
    return c.can_read() && (readable_ || !failure_.ok());
  }
  /// Looks for the next segment where the stream is read; returns false if there is none for now.
  bool find_segment() noexcept {
    tcp_connection& c = data(reading_);
    if (c.in.what() == receive_buffer::head::nothing && may_look(c)) (void)fetch(reading_, {});
    if (c.in.what() == receive_buffer::head::nothing) return false;
    const auto p = c.in.take_segment_header();
    if (!p || p->next >= rails()) {
      malformed(reading_, role::data);
      return false;
    }
    next_in_ = p->next;
    turn_page();
    return true;
  }
  /// Goes to the rail of the next segment once this one has been read.
  void turn_page() noexcept {
    tcp_connection& c = data(reading_);
    if (c.in.left() != 0) return;
    const int here = std::exchange(reading_, next_in_);
    if (here == reading_) return;
    readable_ = true;
    if (c.in.what() == receive_buffer::head::nothing && std::exchange(c.held, false))
      keeper_->watch(peer_, here, role::data);
  }
  /// Receives from the data connection of a rail, and tells the keeper if it has ended.
  receive_buffer::received fetch(int rail, std::span<std::byte> direct) noexcept {
    tcp_connection& c = data(rail);
    const auto got = c.receive(direct);
    if (rail == reading_) readable_ = got.more;
    if (!got.more && std::exchange(c.held, false)) keeper_->watch(peer_, rail, role::data);
    if (!c.can_read()) ended(rail, got.error);
    return got;
  }
  void ended(int rail, int error) noexcept {
    if (error == secure_channel::forgery) fail({errc::auth_failed, 0, peer_, 0});
    keeper_->broken(peer_, rail, error);
  }
  void malformed(int rail, role r) noexcept {
    own(rail, r).in.reject();
    fail({errc::protocol, 0, peer_, 0});
    keeper_->watch(peer_, rail, r);
  }

  keeper* keeper_;
  int peer_;
  bool lower_;
  bool opened_ = false, readable_ = false, left_ = false;
  status failure_{};
  std::optional<control_message> last_;
  std::vector<pair> rails_;
  // Writing: the current segment, and the rail of the next one.
  detail::stripe_cursor stripe_;
  int writing_ = 0;
  std::size_t left_out_ = 0, head_left_ = 0;
  std::byte head_out_[segment_header::encoded_bytes + segment_header::padding_bytes] =
      {};  // the last head_left_ bytes are not sent yet
  // Reading: the same.
  int reading_ = 0, next_in_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace tutti
