#pragma once
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/transport/tcp/connect_attempt.hpp>
#include <tutti/transport/tcp/link.hpp>
#include <tutti/transport/tcp/options.hpp>
#include <tutti/transport/tcp/poller.hpp>
#include <tutti/transport/tcp/sockets.hpp>

namespace tutti::detail {

/// State of one connection that this rank opens.
struct tcp_opening {
  std::optional<tcp_connect_attempt> attempt;
  deadline retry_at = (deadline::max)();
  int attempts = 0;
};

/// Connector: opens the connections of a rank to its peers, and tries again after a failure that may pass. No call
/// blocks.
class tcp_connector {
 public:
  /// Takes this rank's `terms` for any peer. `poller` and `options` outlive it.
  tcp_connector(tcp_poller& poller, const tcp_options& options, const wire::handshake_terms& terms)
      : poller_(poller),
        options_(options),
        terms_(terms),
        openings_(terms.world * static_cast<std::size_t>(options.connections)) {}
  tcp_connector(const tcp_connector&) = delete;
  tcp_connector& operator=(const tcp_connector&) = delete;

  [[nodiscard]] tcp_opening& opening(int p, int rail) noexcept {
    return openings_[static_cast<std::size_t>(poller_.index(p, rail))];
  }

  /// Returns true if an attempt is in progress.
  [[nodiscard]] bool busy() const noexcept { return under_way_ != 0; }
  /// Returns the terms of the handshake with a peer for a connection.
  [[nodiscard]] wire::handshake_terms terms(int p, int rail = 0) const noexcept {
    wire::handshake_terms t = terms_;
    t.target = static_cast<std::uint32_t>(p);
    t.connection = static_cast<std::uint16_t>(rail);
    return t;
  }

  /// Starts to open those of the first `rails` connections that are not open.
  void open(tcp_link& l, int p, int rails) noexcept {
    for (int k = 0; k < rails; ++k)
      if (!opening(p, k).attempt && !l.stream->at(k, l.stream->opened_here()).socket) start(l, p, k);
  }
  /// Continues an attempt, after an event or with time.
  void advance(tcp_link& l, int p, int rail) noexcept {
    tcp_opening& c = opening(p, rail);
    if (!c.attempt) return;
    const auto before = c.attempt->where();
    switch (c.attempt->progress()) {
      case tcp_connect_attempt::state::connecting:
        return;
      case tcp_connect_attempt::state::greeting:
        if (before == tcp_connect_attempt::state::connecting)
          poller_.watch(c.attempt->socket(), tcp_poller::source::attempt, poller_.index(p, rail));
        return;
      case tcp_connect_attempt::state::ready:
        connected(l, p, rail);
        break;
      case tcp_connect_attempt::state::refused:
        l.refused = c.attempt->handshake().why();
        l.theirs = c.attempt->handshake().counterpart();
        l.stream->fail({wire::error_of(l.refused), 0, p, 0});
        break;
      case tcp_connect_attempt::state::hung_up:
        // The peer had too many pending handshakes, or gave up while this rank was busy; or it has just died.
        if (c.attempts >= most_attempts)
          l.suspect(ECONNRESET, rail);
        else
          c.retry_at = after(std::chrono::milliseconds{5} * (1 << (2 * c.attempts)));
        break;
      case tcp_connect_attempt::state::forged:
        l.suspect(secure_channel::forgery, rail);
        l.stream->fail({errc::auth_failed, 0, p, 0});
        break;
      case tcp_connect_attempt::state::failed:
        l.suspect(c.attempt->error(), rail);
        break;
    }
    give_up(c);
  }
  /// Continues attempts, and starts again those that are due. `may_retry()` returns false if no connection is wanted
  /// any more.
  template <class MayRetry>
  void tick(tcp_link& l, int p, deadline now, MayRetry may_retry) noexcept {
    for (int k = 0; k < options_.connections; ++k) {
      tcp_opening& c = opening(p, k);
      if (c.attempt) {
        c.attempt->expire(now);
        advance(l, p, k);
      } else if (now >= c.retry_at) {
        c.retry_at = (deadline::max)();
        if (!may_retry()) continue;
        ++retries_;
        start(l, p, k);
      }
    }
  }
  /// Returns the number of attempts that were started again.
  [[nodiscard]] std::uint64_t retries() const noexcept { return retries_; }
  /// Gives up all attempts.
  void give_up() noexcept {
    for (tcp_opening& c : openings_) give_up(c);
  }

 private:
  void start(tcp_link& l, int p, int rail) noexcept {
    tcp_opening& c = opening(p, rail);
    c.retry_at = (deadline::max)();
    c.attempt.emplace(l.address, terms(p, rail), after(options_.connect));
    ++under_way_;
    ++c.attempts;
    if (c.attempt->socket() < 0 ||
        poller_.watch(c.attempt->socket(), tcp_poller::source::attempt, poller_.index(p, rail), os::interest::write))
      return advance(l, p, rail);
    l.suspect(ENOMEM, rail);
    give_up(c);
  }
  void give_up(tcp_opening& c) noexcept {
    if (!c.attempt) return;
    c.attempt.reset();
    --under_way_;
  }
  void connected(tcp_link& l, int p, int rail) noexcept {
    tcp_socket s = opening(p, rail).attempt->release();
    const bool for_data = l.stream->opened_here() == tcp_stream::role::data;
    for_data ? tune_data(s.native(), options_) : tune_control(s.native(), options_);
    poller_.watch(s.native(), for_data ? tcp_poller::source::data : tcp_poller::source::control,
                  poller_.index(p, rail));
    try {
      l.stream->use(std::move(s), rail, l.stream->opened_here());
    } catch (const std::bad_alloc&) {
      l.suspect(ENOMEM, rail);
    }
  }

  static constexpr int most_attempts = 6;

  tcp_poller& poller_;
  const tcp_options& options_;
  wire::handshake_terms terms_;
  std::vector<tcp_opening> openings_;
  int under_way_ = 0;
  std::uint64_t retries_ = 0;
};

}  // namespace tutti::detail
