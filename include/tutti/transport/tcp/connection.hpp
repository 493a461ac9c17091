#pragma once
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <tutti/os/fd.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/transport/tcp/receive_buffer.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/transport/tcp/sockets.hpp>

namespace tutti::detail {

/// TCP connection with one peer, for both directions. No call blocks.
class tcp_connection {
 public:
  os::fd socket;
  receive_buffer in;
  bool held = false;       ///< arrivals are not watched until what is there has been read
  bool full = false;       ///< the last write was cut short, and there has been no room since
  bool out_ended = false;  ///< nothing more can be written

  /// Takes over a connected socket. May throw bad_alloc.
  void use(tcp_socket connection) {
    in.open();
    channel_ = std::move(connection.channel);
    socket = std::move(connection.socket);
    finishing_ = out_ended = false;
  }
  [[nodiscard]] bool can_write() const noexcept { return socket && !out_ended; }
  [[nodiscard]] bool can_read() const noexcept { return socket && in.end() == receive_buffer::ending::none; }
  /// Returns true if both directions work.
  [[nodiscard]] bool stands() const noexcept { return can_write() && can_read(); }
  /// Returns the events that the poller should watch for.
  [[nodiscard]] os::interest wanted() const noexcept {
    if (!can_read()) return os::interest::none;
    const bool write = can_write() && (full || keeps_some());
    if (!held) return write ? os::interest::read_write : os::interest::read;
    return write ? os::interest::write : os::interest::none;
  }

  using parts = std::array<std::span<const std::byte>, 3>;

  /// Writes as many bytes as there is room for. The kernel collects short records in full segments from the 17th since
  /// push() on.
  os::io_result write(const parts& p) noexcept {
    unpushed_ = ++records_ > most_at_once && size_of(p) <= most_joined;
    const os::io_result r = send(p, unpushed_ ? os::segment::when_full : os::segment::now);
    full = r.bytes < size_of(p);
    if (r.closed) out_ended = true;
    return r;
  }
  /// Sends the short records that the kernel has kept. Each poll calls it, and a rank that goes to sleep.
  void push() noexcept {
    records_ = 0;
    if (std::exchange(unpushed_, false)) os::push_out(socket.native());
  }
  /// Writes all of a few bytes. Keeps those that there is no room for and writes them later, so that the caller need
  /// not.
  os::io_result write_whole(std::span<const std::byte> record) noexcept {
    if (!can_write() || finishing_) return {};
    os::io_result r = kept_.empty() ? send_one(record) : os::io_result{};
    if (r.closed) {
      out_ended = true;
      return r;
    }
    try {
      kept_.insert(kept_.end(), record.begin() + static_cast<std::ptrdiff_t>(r.bytes), record.end());
    } catch (const std::bad_alloc&) {  // nothing must follow a record that is cut short
      out_ended = true;
      return {0, ENOMEM, true};
    }
    r.bytes = record.size();
    return r;
  }
  [[nodiscard]] bool keeps_some() const noexcept { return !kept_.empty() || (channel_ && channel_->keeps_some()); }
  /// Writes what was kept; called when there is room again.
  void flush() noexcept {
    full = false;
    if (!keeps_some() || out_ended) return;
    os::io_result r = channel_ ? channel_->flush() : os::io_result{};
    if (!r.closed && !kept_.empty()) {
      r = send_one(kept_);
      kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(r.bytes));
    }
    if (r.closed) out_ended = true;
    if (finishing_) finish_writing();
  }

  /// Receives what has arrived, see receive_buffer.
  receive_buffer::received receive(std::span<std::byte> direct) noexcept {
    return in.receive(socket.native(), direct, channel_.get());
  }
  /// Receives and drops what has arrived.
  void discard() noexcept { in.discard(socket.native(), channel_.get()); }
  void close() noexcept {
    channel_.reset();
    socket.reset();
  }

  /// Ends the direction to the peer; what was written is still delivered.
  void finish_writing() noexcept {
    finishing_ = true;
    if (!socket || (keeps_some() && !out_ended)) return;
    out_ended = true;
    detail::finish_writing(socket.native());
  }
  /// Returns true if everything written has reached the peer's kernel, or nobody is there to take it.
  [[nodiscard]] bool delivered() const noexcept {
    return !can_read() || ((!keeps_some() || out_ended) && is_delivered(socket.native()));
  }

 private:
  static constexpr std::size_t most_joined = 1280;
  static constexpr int most_at_once = 16;  // short records; a segment for each costs both sides microseconds

  static std::size_t size_of(const parts& p) noexcept { return p[0].size() + p[1].size() + p[2].size(); }
  // The kernel takes less time for one buffer than for a list, and copying a small message takes less than the
  // difference.
  [[nodiscard]] os::io_result send(const parts& p, os::segment last) const noexcept {
    if (channel_) [[unlikely]]
      return encrypt(p, last);
    if (p[0].empty() && p[2].empty()) return os::send_some(socket.native(), p[1], last);
    const std::size_t bytes = size_of(p);
    if (bytes > most_joined) {
      const std::array<iovec, 3> pieces{os::to_iovec(p[0]), os::to_iovec(p[1]), os::to_iovec(p[2])};
      return os::send_some(socket.native(), pieces);
    }
    std::array<std::byte, most_joined> whole;
    return os::send_some(socket.native(), join(p, whole), last);
  }
  [[nodiscard]] os::io_result send_one(std::span<const std::byte> bytes) const noexcept {
    return channel_ ? channel_->write(bytes, os::segment::now) : os::send_some(socket.native(), bytes);
  }
  /// Writes the parts encrypted: the first bytes of all of them in one record, and what is left of each in others.
  [[nodiscard]] os::io_result encrypt(const parts& p, os::segment last) const noexcept {
    std::array<std::byte, most_joined> first;
    const auto joined = join(p, first);
    const std::size_t bytes = size_of(p);
    os::io_result r = channel_->write(joined, bytes > joined.size() ? os::segment::when_full : last);
    std::size_t before = 0;  // bytes of the parts before this one
    for (const auto& one : p) {
      if (r.error != 0 || r.closed) break;
      const std::size_t written = r.bytes - (std::min)(r.bytes, before);
      before += one.size();
      if (written >= one.size()) continue;
      const os::io_result more = channel_->write(one.subspan(written), last);
      r = {r.bytes + more.bytes, more.error, more.closed};
    }
    return r;
  }
  /// Copies the first bytes of all parts, as many as there is room for.
  static std::span<const std::byte> join(const parts& p, std::span<std::byte, most_joined> to) noexcept {
    std::size_t n = 0;
    for (const auto& one : p) {
      const std::size_t some = (std::min)(one.size(), to.size() - n);
      if (some != 0) std::memcpy(to.data() + n, one.data(), some);
      n += some;
    }
    return to.first(n);
  }

  std::unique_ptr<secure_channel> channel_;  // null: nothing is encrypted
  std::vector<std::byte> kept_;              // what the socket had no room for of records that must be written whole
  bool finishing_ = false;
  bool unpushed_ = false;  // the kernel keeps the end of what was written
  int records_ = 0;        // written since push()
};

}  // namespace tutti::detail
