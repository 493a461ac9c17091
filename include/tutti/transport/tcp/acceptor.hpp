#pragma once
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/wire/pending_places.hpp>
#include <tutti/wire/server_handshake.hpp>

namespace tutti::detail {

/// Pending handshakes: accepted connections that have not proved themselves. Their number is fixed, and none takes
/// memory of its own. If all places are taken, the oldest connection is closed, as a peer needs only a moment; if at
/// least an eighth of them come from one address, the oldest of that address. A connection that has shown the secret is
/// closed only if all have. A connection on which something wrong comes, or nothing in time, is closed; nobody waits
/// for it.
class tcp_acceptor {
 public:
  /// Connection that has proved to be a peer's.
  struct peer {
    int rank = -1;
    tcp_socket connection;
    int rail = 0;  ///< the rail that it belongs to
  };

  /// Holds up to `places` connections, each for `patience` at most.
  tcp_acceptor(int places, const wire::handshake_terms& terms, duration patience)
      : places_(static_cast<std::size_t>(places)), terms_(terms), patience_(patience) {}

  /// Accepts some of the connections that wait at the listener; the poller names them `token` + place. Returns false if
  /// the process has no descriptors left.
  bool accept_some(int listener, os::poller& poller, std::uint64_t token, deadline now) noexcept {
    constexpr int most_at_once = 16;
    for (int i = 0; i < most_at_once; ++i) {
      os::socket_result next = os::accept_connection(listener);
      if (!next.socket) return next.error == EAGAIN || starve(next.error, now);
      failure_ = 0;
      const std::uint64_t source = os::remote_endpoint(next.socket.native()).host_number();
      const std::size_t at = free_place();
      place& p = places_[at];
      p.connection.socket = std::move(next.socket);
      p.until = now + patience_;
      p.source = source;
      p.handshake.emplace(terms_);
      try {
        poller.add(p.connection.native(), os::interest::read, token + at);
      } catch (const error&) {
        clear(p);
        return false;
      }
      // A peer's claim comes with its connection, and keeps it from being cleared for the next one. Without a secret
      // the claim is all that a peer says, and continue_handshake() takes it.
      const bool here = terms_.how == wire::proof::hmac ? listen(p) : send_reply(p);
      if (!here || p.handshake->state() != wire::handshake_state::running) clear(p);
    }
    return true;
  }

  /// Returns the errno for which connections have waited at the listener for a second, although no pending handshake
  /// takes what they need; else 0.
  [[nodiscard]] int starved() const noexcept {
    return failed_last_ - failed_first_ >= std::chrono::seconds{1} && waiting() == 0 ? failure_ : 0;
  }

  /// Continues the handshake at a place. Returns the connection once it has proved to be a peer's.
  std::optional<peer> continue_handshake(std::size_t at) noexcept {
    if (at >= places_.size() || !places_[at].connection) return std::nullopt;
    place& p = places_[at];
    const bool here = p.connection.channel || listen(p);
    const auto encrypted = here ? encrypt(p) : secure_channel::progress::closed;
    if (encrypted == secure_channel::progress::waiting) return std::nullopt;
    if (encrypted == secure_channel::progress::open) {
      peer g{static_cast<int>(p.handshake->claim().rank), std::move(p.connection), p.handshake->claim().connection};
      clear(p);
      return g;
    }
    clear(p);
    return std::nullopt;
  }

  /// Closes the connections whose time is over.
  void expire(deadline now) noexcept {
    for (place& p : places_)
      if (p.connection && now >= p.until) clear(p);
  }
  void clear() noexcept {
    for (place& p : places_) clear(p);
  }
  /// Returns the number of pending handshakes.
  [[nodiscard]] std::size_t waiting() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(places_.begin(), places_.end(), [](const place& p) { return bool(p.connection); }));
  }

 private:
  struct place {
    tcp_socket connection;
    std::optional<wire::server_handshake> handshake;
    deadline until{};
    std::uint64_t source = 0;
  };

  static void clear(place& p) noexcept {
    p.connection.reset();
    p.handshake.reset();
  }
  /// Reads the bytes that are there and answers. Returns false if the other side is gone or does not take the answer.
  static bool listen(place& p) noexcept {
    std::array<std::byte, 256> some;
    const auto room = std::span{some}.first((std::min)(some.size(), p.handshake->wanted()));
    const os::io_result r = os::receive_some(p.connection.native(), room);
    p.handshake->receive(room.first(r.bytes));
    return send_reply(p) && !r.closed;
  }
  /// Sends what the handshake has to say, which fits into any socket at once. Returns false if it did not.
  static bool send_reply(place& p) noexcept {
    const auto out = p.handshake->output();
    const os::io_result r = os::send_some(p.connection.native(), out);
    p.handshake->sent(r.bytes);
    return r.bytes == out.size();
  }
  /// Continues after listen(): returns `waiting` while one of the handshakes is not complete, `open` once the
  /// connection is a peer's, encrypted if it has to be.
  [[nodiscard]] secure_channel::progress encrypt(place& p) const noexcept {
    using enum secure_channel::progress;
    if (p.handshake->state() == wire::handshake_state::running) return waiting;
    if (p.handshake->state() != wire::handshake_state::accepted) return closed;
    if (terms_.role != wire::connection_role::encrypted_peer) return open;
    if (!p.connection.channel && !make_channel(p.connection, secure_channel::side::acceptor, *p.handshake, terms_.job))
      return closed;
    return p.connection.channel->continue_handshake();
  }
  static bool has_shown_nothing(const place& p) noexcept { return !p.handshake->has_early_proof(); }
  /// Returns a free place, after closing a connection if need be.
  std::size_t free_place() noexcept {
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (!places_[i].connection) return i;
    const bool all_proved = std::none_of(places_.begin(), places_.end(), has_shown_nothing);
    const auto may_go = [&](const place& p) { return all_proved || has_shown_nothing(p); };
    const auto busiest = wire::busiest_source(places_, may_go);
    std::size_t oldest = places_.size();
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (may_go(places_[i]) && (!busiest || places_[i].source == *busiest) &&
          (oldest == places_.size() || places_[i].until < places_[oldest].until))
        oldest = i;
    clear(places_[oldest]);
    return oldest;
  }

  /// Records that no connection could be accepted, and returns false. Failures that follow each other count as one
  /// shortage: while a connection waits, it is tried again and again.
  bool starve(int error, deadline now) noexcept {
    if (failure_ == 0 || now - failed_last_ > std::chrono::seconds{5}) failed_first_ = now;
    failed_last_ = now;
    failure_ = error;
    return false;
  }

  std::vector<place> places_;
  wire::handshake_terms terms_;
  duration patience_;
  int failure_ = 0;  // of the last try to accept
  deadline failed_first_{}, failed_last_{};
};

}  // namespace tutti::detail
