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

#include <tutti/core/when_used.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/piece.hpp>
#include <tutti/transport/tcp_notice.hpp>

namespace tutti {

/// What a peer writes to one connection: notices and pieces of its stream, one after the other. Reads ahead, so that a
/// small message costs one call.
template <class = when_used>
class basic_inflow {
 public:
  enum class ending : std::uint8_t { none, closed, cut };  ///< not yet; between two records; broken
  /// What comes next; `nothing` where not all of its head is here.
  enum class head : std::uint8_t { nothing, notice, piece, body, nonsense };

  /// A short message and all that stands before it; of a long one only this much is copied twice.
  static constexpr std::size_t ahead_bytes = (8 << 10) + 64;

  /// May throw bad_alloc.
  void open() {
    if (!ahead_) ahead_ = std::make_unique_for_overwrite<std::byte[]>(ahead_bytes);  // NOLINT: no vector's zeros
  }
  [[nodiscard]] ending end() const noexcept { return end_; }
  /// What came is not what a peer writes: nothing more is read.
  void spoil() noexcept { end_ = ending::cut; }
  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  [[nodiscard]] head what() const noexcept {
    if (left_ != 0) return head::body;
    if (from_ == to_) return head::nothing;
    const auto first = std::to_integer<std::uint8_t>(ahead_[from_]);
    if (first == piece::mark) return to_ - from_ < piece::encoded_bytes ? head::nothing : head::piece;
    if (first == 0 || first > static_cast<std::uint8_t>(tcp_notice::last_kind)) return head::nonsense;
    return to_ - from_ < tcp_notice::encoded_bytes ? head::nothing : head::notice;
  }
  /// The notice or the head of the piece that is next; nothing where the bytes are none, which ends the connection.
  std::optional<tcp_notice> take_notice() noexcept { return take_record<tcp_notice>(); }
  std::optional<piece> take_piece() noexcept {
    const auto p = take_record<piece>();
    if (p) left_ = p->bytes;
    return p;
  }
  /// Bytes of the piece that were read ahead.
  std::size_t take(std::span<std::byte> into) noexcept {
    const std::size_t n = std::min({into.size(), left_, to_ - from_});
    if (n != 0) std::memcpy(into.data(), ahead_.get() + from_, n);
    from_ += n;
    left_ -= n;
    return n;
  }

  struct received {
    std::size_t bytes = 0;
    std::size_t direct = 0;  ///< of these, of the piece, into the caller's memory
    bool filled = false;     ///< more may be there
    int error = 0;           ///< with which the connection has just ended
  };
  /// Receives what is there: bytes of the piece into `direct`, for which nothing may have been read ahead, and what
  /// follows them.
  received receive(int socket, std::span<std::byte> direct) noexcept {
    if (from_ != 0) {
      std::memmove(ahead_.get(), ahead_.get() + from_, to_ - from_);
      to_ -= std::exchange(from_, std::size_t{0});
    }
    direct = direct.first(std::min(direct.size(), left_));
    const std::span room{ahead_.get() + to_, ahead_bytes - to_};
    const std::array<iovec, 2> both{iovec{direct.data(), direct.size()}, iovec{room.data(), room.size()}};
    // The call for one buffer is the cheaper one.
    const os::io_result r = direct.empty() ? os::receive_some(socket, room) : os::receive_some(socket, both);
    const std::size_t mine = std::min(r.bytes, direct.size());
    to_ += r.bytes - mine;
    left_ -= mine;
    if (r.closed) end_ = r.error == 0 && left_ == 0 && from_ == to_ ? ending::closed : ending::cut;
    return {r.bytes, mine, r.bytes == direct.size() + room.size(), r.closed ? r.error : 0};
  }

  /// Throws away what was read ahead of pieces, up to the next notice.
  void skip() noexcept {
    do {
      const std::size_t n = std::min(left_, to_ - from_);
      from_ += n;
      left_ -= n;
    } while (what() == head::piece && take_piece());
  }
  /// Takes what arrives and throws it away, some of it at a time; a socket that is closed with bytes unread would
  /// reset the connection, and with it what the peer has not read yet.
  void discard(int socket) noexcept {
    for (int i = 0; i < 128 && end_ == ending::none; ++i) {
      from_ = to_ = left_ = 0;
      receive(socket, {});
      if (to_ == 0) break;
    }
    from_ = to_ = left_ = 0;
  }

 private:
  template <class Record>
  std::optional<Record> take_record() noexcept {
    const auto r =
        Record::decode(std::span<const std::byte, Record::encoded_bytes>{ahead_.get() + from_, Record::encoded_bytes});
    from_ += Record::encoded_bytes;
    if (!r) end_ = ending::cut;
    return r;
  }

  std::unique_ptr<std::byte[]> ahead_;  // NOLINT: see open()
  std::size_t from_ = 0, to_ = 0;       // what was read ahead
  std::size_t left_ = 0;                // of the piece under way
  ending end_ = ending::none;
};

/// See basic_inflow.
using inflow = basic_inflow<>;

}  // namespace tutti
