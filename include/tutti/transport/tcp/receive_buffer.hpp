#pragma once
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <tutti/core/kernels/copy.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/tcp/control_message.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/transport/tcp/segment_header.hpp>

namespace tutti::detail {

/// Receive buffer of one connection, on which a peer writes segments of its stream, or control messages. It reads
/// ahead, so that a small message costs one system call.
class receive_buffer {
 public:
  /// End of the incoming direction: none yet, `closed` between two records, `cut` within a record or by an error, or
  /// `malformed` by bytes that a peer does not write.
  enum class ending : std::uint8_t { none, closed, cut, malformed };
  /// Kind of what comes next; `nothing` if its header has not arrived completely.
  enum class head : std::uint8_t { nothing, control, segment, body, malformed };

  /// Bytes that are read ahead: room for a short message and all that stands before it. A long message is copied twice
  /// only this far.
  static constexpr std::size_t ahead_bytes = (16 << 10) + 128;

  /// Allocates the buffer, once. May throw bad_alloc.
  void open() {
    if (!ahead_) ahead_ = std::make_unique_for_overwrite<lines>();
  }
  [[nodiscard]] ending end() const noexcept { return end_; }
  /// Records that the peer sent something malformed: nothing more is read.
  void reject() noexcept { end_ = ending::malformed; }
  /// Returns the bytes of the current segment that have not been taken.
  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  [[nodiscard]] head what() const noexcept {
    if (left_ != 0) return head::body;
    if (from_ == to_) return head::nothing;
    const std::byte* at = ahead_->bytes + from_;
    const std::size_t there = to_ - from_;
    const auto first = std::to_integer<std::uint8_t>(*at);
    if (first == segment_header::mark)
      return there >= segment_header::encoded_bytes && there >= segment_header::head_bytes(at) ? head::segment
                                                                                               : head::nothing;
    if (first == 0 || first > static_cast<std::uint8_t>(control_message::last_kind)) return head::malformed;
    return there < control_message::encoded_bytes ? head::nothing : head::control;
  }
  /// Takes the next control message that was read ahead. Returns nullopt if there is none, or if something else is
  /// there, which ends the incoming direction.
  std::optional<control_message> take_control_message() noexcept {
    const head h = what();
    if (h == head::nothing) return std::nullopt;
    const auto n = h == head::control ? decode<control_message>() : std::nullopt;
    if (!n) {
      reject();
      return n;
    }
    from_ += control_message::encoded_bytes;
    return n;
  }
  /// Takes the header of the next segment. Returns nullopt, and ends the incoming direction, if something else comes
  /// next.
  std::optional<segment_header> take_segment_header() noexcept {
    const auto p = what() == head::segment ? decode<segment_header>() : std::nullopt;
    if (!p) {
      reject();
      return p;
    }
    from_ += segment_header::head_bytes(ahead_->bytes + from_);
    left_ = p->bytes;
    return p;
  }
  /// Copies bytes of the current segment that were read ahead, and returns their number.
  std::size_t take(std::span<std::byte> into) noexcept {
    const std::size_t n = (std::min)({into.size(), left_, to_ - from_});
    copy_bytes(into.data(), ahead_->bytes + from_, n);
    from_ += n;
    left_ -= n;
    return n;
  }

  /// Result of receive().
  struct received {
    std::size_t bytes = 0;
    std::size_t direct = 0;  ///< of these, bytes of the segment that went into the caller's memory
    bool more = false;       ///< more may be there, as all room was used
    int error = 0;           ///< with which the connection has just ended; 0: none, or the peer closed it
  };
  /// Receives what has arrived: bytes of the current segment into `direct`, and what follows them into the buffer.
  /// `direct` must be empty if bytes of the segment have been read ahead. Never blocks. `channel` decrypts what comes,
  /// if it is not null.
  received receive(int socket, std::span<std::byte> direct, secure_channel* channel = nullptr) noexcept {
    if (from_ != 0) {
      std::memmove(ahead_->bytes, ahead_->bytes + from_, to_ - from_);
      to_ -= std::exchange(from_, std::size_t{0});
    }
    direct = direct.first((std::min)(direct.size(), left_));
    const std::span<std::byte> room{ahead_->bytes + to_, ahead_bytes - to_};
    const std::array<iovec, 2> both{iovec{direct.data(), direct.size()}, iovec{room.data(), room.size()}};
    // The system call for one buffer is the cheaper one.
    const os::io_result r = channel          ? channel->read(both)
                            : direct.empty() ? os::receive_some(socket, room)
                                             : os::receive_some(socket, both);
    const std::size_t mine = (std::min)(r.bytes, direct.size());
    to_ += r.bytes - mine;
    left_ -= mine;
    if (r.closed) end_ = r.error == 0 && left_ == 0 && from_ == to_ ? ending::closed : ending::cut;
    const bool more = channel ? r.error == 0 && !r.closed : r.bytes == direct.size() + room.size();
    return {r.bytes, mine, more, r.closed ? r.error : 0};
  }

  /// Receives and drops what arrives, a limited number of bytes for each call. A socket that is closed with bytes
  /// unread would reset the connection, and the peer would lose what it has not read yet.
  void discard(int socket, secure_channel* channel = nullptr) noexcept {
    for (int i = 0; i < 128 && end_ == ending::none; ++i) {
      from_ = to_ = left_ = 0;
      receive(socket, {}, channel);
      if (to_ == 0) break;
    }
    from_ = to_ = left_ = 0;
  }

 private:
  template <class Record>
  [[nodiscard]] std::optional<Record> decode() const noexcept {
    return Record::decode(
        std::span<const std::byte, Record::encoded_bytes>{ahead_->bytes + from_, Record::encoded_bytes});
  }

  // It begins at a cache line, because the kernel copies slowly to some bytes behind the start of a page (see
  // segment_header).
  struct alignas(cache_line) lines {
    std::byte bytes[ahead_bytes];
  };

  std::unique_ptr<lines> ahead_;
  std::size_t from_ = 0, to_ = 0;  // the part of the buffer that was read ahead
  std::size_t left_ = 0;           // bytes of the current segment that have not been taken
  ending end_ = ending::none;
};

}  // namespace tutti::detail
