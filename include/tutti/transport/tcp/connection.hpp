#pragma once
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <tutti/os/fd.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/transport/tcp/receive_buffer.hpp>
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
  void use(os::fd connection) {
    in.open();
    socket = std::move(connection);
    finishing_ = out_ended = false;
  }
  [[nodiscard]] bool can_write() const noexcept { return socket && !out_ended; }
  [[nodiscard]] bool can_read() const noexcept { return socket && in.end() == receive_buffer::ending::none; }
  /// Returns true if both directions work.
  [[nodiscard]] bool stands() const noexcept { return can_write() && can_read(); }
  /// Returns the events that the poller should watch for.
  [[nodiscard]] os::interest wanted() const noexcept {
    if (!can_read()) return os::interest::none;
    const bool write = can_write() && (full || !kept_.empty());
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
    os::io_result r = kept_.empty() ? os::send_some(socket.native(), record) : os::io_result{};
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
  [[nodiscard]] bool keeps_some() const noexcept { return !kept_.empty(); }
  /// Writes what was kept; called when there is room again.
  void flush() noexcept {
    full = false;
    if (kept_.empty() || out_ended) return;
    const os::io_result r = os::send_some(socket.native(), std::span<const std::byte>{kept_});
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(r.bytes));
    if (r.closed) out_ended = true;
    if (finishing_) finish_writing();
  }

  /// Ends the direction to the peer; what was written is still delivered.
  void finish_writing() noexcept {
    finishing_ = true;
    if (!socket || (!kept_.empty() && !out_ended)) return;
    out_ended = true;
    detail::finish_writing(socket.native());
  }
  /// Returns true if everything written has reached the peer's kernel, or nobody is there to take it.
  [[nodiscard]] bool delivered() const noexcept {
    return !can_read() || ((kept_.empty() || out_ended) && is_delivered(socket.native()));
  }

 private:
  static constexpr std::size_t most_joined = 1280;
  static constexpr int most_at_once = 16;  // short records; a segment for each costs both sides microseconds

  static std::size_t size_of(const parts& p) noexcept { return p[0].size() + p[1].size() + p[2].size(); }
  // The kernel takes less time for one buffer than for a list, and copying a small message takes less than the
  // difference.
  [[nodiscard]] os::io_result send(const parts& p, os::segment last = os::segment::now) const noexcept {
    if (p[0].empty() && p[2].empty()) return os::send_some(socket.native(), p[1], last);
    const std::size_t bytes = size_of(p);
    if (bytes > most_joined) {
      const std::array<iovec, 3> pieces{os::to_iovec(p[0]), os::to_iovec(p[1]), os::to_iovec(p[2])};
      return os::send_some(socket.native(), pieces);
    }
    std::array<std::byte, most_joined> whole;
    std::byte* to = whole.data();
    for (const auto& one : p) {
      if (!one.empty()) std::memcpy(to, one.data(), one.size());
      to += one.size();
    }
    return os::send_some(socket.native(), std::span<const std::byte>{whole}.first(bytes), last);
  }

  std::vector<std::byte> kept_;  // what the socket had no room for of records that must be written whole
  bool finishing_ = false;
  bool unpushed_ = false;  // the kernel keeps the end of what was written
  int records_ = 0;        // written since push()
};

}  // namespace tutti::detail
