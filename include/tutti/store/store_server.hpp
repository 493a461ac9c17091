#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/peer_credentials.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/store/detail/pending_connections.hpp>
#include <tutti/store/detail/store_connection.hpp>
#include <tutti/store/detail/store_listener.hpp>
#include <tutti/store/detail/store_terms.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/key_value_table.hpp>
#include <tutti/store/tcp_store_options.hpp>
#include <tutti/wire/pending_places.hpp>

namespace tutti {

/// The host of a tcp_store: the table, a listening socket and the clients' connections. Has no thread: step() serves
/// the clients. One thread at a time uses it. A TCP client must prove that it has the job's secret before its requests
/// are read, or, without a secret, must name the job's id (unless `any_job`). At a Unix socket the kernel confirms that
/// it runs as the same user. Until then, at most 152 bytes of a connection are read, and it has `handshake_timeout`. If
/// too many are pending, the oldest of the address with most of them is closed, but none that has shown the secret
/// while another has not. Never waits for a client.
class store_server {
 public:
  /// Listens on `where`; with port 0 the kernel chooses one, see endpoint(). Throws error if the address is in use, and
  /// error{auth_failed} if other machines could reach it and there is no secret.
  store_server(const os::endpoint& where, tcp_store_options options)
      : store_server(detail::listen_within_policy(where, options), std::move(options)) {
    if (where.is_unix()) unix_file_ = where.to_string().substr(5);
  }

  /// Takes over a listening socket, as inherited from a launcher. Throws error{rendezvous} for another descriptor, and
  /// {auth_failed} as above.
  store_server(os::fd listener, tcp_store_options options)
      : options_(std::move(options)), table_(options_.limits), listener_(std::move(listener)) {
    detail::check_listening(listener_);
    ::fcntl(listener_.native(), F_SETFL, ::fcntl(listener_.native(), F_GETFL) | O_NONBLOCK);
    ::fcntl(listener_.native(), F_SETFD, FD_CLOEXEC);
    listener_.end_in_children();
    keep_spare();
    endpoint_ = os::local_endpoint(listener_.native());
    const auto how = endpoint_.is_unix() ? wire::proof::kernel
                     : options_.secret   ? wire::proof::hmac
                                         : wire::proof::job_id;
    if (how == wire::proof::hmac) wire::require_hmac_provider();
    detail::check_policy(endpoint_, options_);
    terms_ = detail::handshake_terms_of(options_, how);
    pending_limit_ = wire::pending_places(static_cast<std::size_t>((std::max)({options_.world, options_.expected, 0})));
    poller_.add(listener_.native(), os::interest::read, listener_token);
  }

  store_server(const store_server&) = delete;
  store_server& operator=(const store_server&) = delete;
  ~store_server() {
    if (!unix_file_.empty() && unix_file_.front() != '@' && owner_ == ::getpid()) ::unlink(unix_file_.c_str());
  }

  /// Returns the address at which it listens.
  [[nodiscard]] const os::endpoint& endpoint() const noexcept { return endpoint_; }

  /// Accepts connections and serves requests, after waiting at most `limit` for the first. Returns true if there were
  /// any. Throws error only if the poller fails, never because of bytes that arrive.
  bool step(duration limit) {
    const deadline now = clock::now();
    if (paused_until_ > now) limit = (std::min)(limit, duration{paused_until_ - now});
    if (const auto* first = pending_.first()) limit = (std::min)(limit, remaining(first->expires));
    resume_listener(now);
    bool busy = false;
    std::size_t got = os::poller::batch;
    // Bounded, so that a flood of connections cannot keep the caller from checking its deadline.
    for (int round = 0; round < 16 && got == os::poller::batch; ++round) {
      const auto ready = poller_.wait(busy ? duration{0} : limit);
      got = ready.size();
      for (const auto& r : ready) {
        if (r.token == listener_token) {
          accept_some();
        } else {
          serve(r);
        }
      }
      busy = busy || got > 0;
    }
    drop_expired();
    return busy;
  }

  /// Serves until `done()` returns true; returns false after the deadline.
  template <class Done>
  bool serve_until(deadline until, Done&& done) {
    while (!done()) {
      if (clock::now() >= until) return false;
      step(remaining(until));
    }
    return true;
  }

  /// Serves until all other ranks have connected and all clients have left; returns false after the deadline.
  bool linger(deadline until) {
    const auto others = static_cast<std::size_t>((std::max)(options_.world - 1, 0));
    return serve_until(until, [&] { return ranks_.size() >= others && clients() == 0; });
  }

  /// Serves until `done()` returns true, even if clients are left then; returns false after the deadline.
  template <class Done>
  bool linger(deadline until, Done&& done) {
    return serve_until(until, std::forward<Done>(done));
  }

  [[nodiscard]] std::size_t clients() const noexcept { return connections_.size() - pending_.size(); }
  /// Returns the number of clients of the host's own job.
  [[nodiscard]] std::size_t members() const noexcept {
    std::size_t count = 0;
    for (const auto& [id, c] : connections_)
      if (c->admitted() && c->handshake().claim().job == options_.job) ++count;
    return count;
  }
  /// Returns the host's address, with port 0, to which a client has connected; nothing if all use loopback addresses.
  [[nodiscard]] std::optional<os::endpoint> reached_at() const {
    for (const auto& [id, c] : connections_)
      if (const auto where = os::local_endpoint(c->native()); c->admitted() && !where.is_loopback())
        return where.with_port(0);
    return std::nullopt;
  }
  [[nodiscard]] std::size_t pending() const noexcept { return pending_.size(); }

  /// Returns the ranks that have ever connected, in ascending order.
  [[nodiscard]] const std::vector<std::uint32_t>& ranks() const noexcept { return ranks_; }

  /// Returns text for an error message: the number of connections that were refused though they spoke this protocol,
  /// and the reason of the last refusal. Empty if there were none.
  [[nodiscard]] std::string refusals() const {
    if (refused_ == 0) return {};
    return std::to_string(refused_) + (refused_ == 1 ? " connection was" : " connections were") +
           " refused, the last because " + wire::explain(last_refusal_, terms_, last_refused_);
  }

  /// Returns the errno, as EMFILE, for which no connection can be accepted even though none is pending; else 0.
  [[nodiscard]] int exhausted() const noexcept { return exhausted_; }

  [[nodiscard]] const key_value_table& table() const noexcept { return table_; }

  /// Changes the table for the host itself, and answers the clients that wait for `key`. Returns what
  /// `apply(key_value_table&)` returns: the table's answer.
  template <class Apply>
  wire::store_answer change(std::string_view key, Apply&& apply) {
    const auto answer = apply(table_);
    if (answer == wire::store_answer::ok) wake(key);
    return answer;
  }

 private:
  using connection = detail::store_connection;
  using progress = connection::progress;
  static constexpr std::uint64_t listener_token = 0;
  static constexpr std::size_t waits_limit = 16;
  static constexpr duration time_to_prove = std::chrono::milliseconds{250};

  void accept_some() {
    // Bounded, so that a flood of connections cannot keep the server from its clients.
    for (int i = 0; i < 64; ++i) {
      auto [socket, failure] = os::accept_connection(listener_.native());
      if (!socket) {
        if (failure == EAGAIN || !make_room(failure)) return;
        continue;
      }
      exhausted_ = 0;
      if (endpoint_.is_unix() && !os::peer_is_same_user(socket.native())) continue;
      const std::uint64_t source = os::remote_endpoint(socket.native()).host_number();
      if (pending_.size() >= pending_limit_) drop(pending_.oldest_of_busiest().id);
      try {
        admit(std::move(socket), source);
      } catch (const std::bad_alloc&) {
      } catch (const error&) {  // the poller has no room: the connection is closed, and its client tries again
      }
    }
  }

  void admit(os::fd socket, std::uint64_t source) {
    const std::uint64_t id = ++last_id_;
    auto c = std::make_unique<connection>(std::move(socket), terms_);
    if (c->flush() == progress::ended) return;
    c->armed = c->wanted();
    poller_.add(c->native(), c->armed, id);
    connections_.emplace(id, std::move(c));
    pending_.add({id, source, after(options_.handshake_timeout)});
    // A rank's claim comes with its connection, and keeps it from being dropped for the next one.
    serve({id, true});
  }

  /// Frees a descriptor after accept() failed: closes the oldest pending connection, if it had 250 ms for its
  /// handshake, or else the spare one. Returns true to accept again. If neither is there, the listener is not polled
  /// for a moment, as it stays readable.
  bool make_room(int failure) {
    if (drop_slowest()) return true;
    if (spare_) {
      spare_.reset();
      return true;
    }
    if (pending_.size() == 0) exhausted_ = failure;
    paused_until_ = after(pending_.size() == 0 ? std::chrono::milliseconds{50} : std::chrono::milliseconds{2});
    poller_.modify(listener_.native(), os::interest::none, listener_token);
    return false;
  }

  bool drop_slowest() noexcept {
    const auto* oldest = pending_.oldest();
    if (oldest == nullptr || clock::now() - (oldest->expires - options_.handshake_timeout) < time_to_prove)
      return false;
    drop(oldest->id);
    return true;
  }

  void resume_listener(deadline now) {
    if (paused_until_ == deadline{} || paused_until_ > now) return;
    paused_until_ = deadline{};
    poller_.modify(listener_.native(), os::interest::read, listener_token);
  }

  void serve(const os::ready_event& ready) {
    const auto at = connections_.find(ready.token);
    if (at == connections_.end()) return;  // closed earlier in this batch
    connection& c = *at->second;
    progress state = progress::going_on;
    try {
      const bool was_pending = !c.admitted();
      if (ready.readable) state = c.receive();
      if (was_pending) note_handshake(ready.token, c);
      if (was_pending && c.admitted() && !endpoint_.is_unix() &&
          os::set_tcp_options(c.native(), detail::store_tcp_options) != 0)
        state = progress::ended;
      if (state == progress::going_on) state = converse(c);
      if (state == progress::going_on) rearm(ready.token, c);
    } catch (const std::bad_alloc&) {
      state = progress::ended;
    } catch (const error&) {
      state = progress::ended;
    }
    if (state == progress::ended) drop(ready.token);
  }

  /// Sends responses and handles requests in turn, until no complete request is left or there is no room for responses.
  /// The event that makes room continues then.
  progress converse(connection& c) {
    for (;;) {
      if (c.flush() == progress::ended) return progress::ended;
      const std::size_t before = c.unhandled_bytes();
      const progress handled = c.handle_requests([&](const wire::store_request& q, std::string_view key, auto expected,
                                                     auto value) { return handle(c, q, key, expected, value); });
      if (handled == progress::ended || c.unhandled_bytes() == before) return handled;
    }
  }

  void note_handshake(std::uint64_t id, const connection& c) {
    if (c.admitted()) {
      pending_.remove(id);
      const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), c.rank());
      if (at == ranks_.end() || *at != c.rank()) ranks_.insert(at, c.rank());
    } else if (c.handshake().state() == wire::handshake_state::refused &&
               c.handshake().why() != wire::refusal::not_our_protocol) {
      ++refused_;
      last_refusal_ = c.handshake().why();
      last_refused_ = c.handshake().counterpart();
    } else if (c.handshake().has_early_proof()) {
      pending_.prefer(id);
    }
  }

  progress handle(connection& c, const wire::store_request& q, std::string_view key,
                  std::span<const std::byte> expected, std::span<const std::byte> value) {
    wire::store_response p;
    p.id = q.id;
    std::span<const std::byte> back;
    const auto found = [&] {
      const auto* v = table_.find(key);
      if (v != nullptr) back = *v;
      p.answer = v != nullptr ? wire::store_answer::ok : wire::store_answer::absent;
      return v != nullptr;
    };
    switch (q.verb) {
      case wire::store_verb::set:
        p.answer = change(key, [&](auto& t) { return t.set(key, value); });
        break;
      case wire::store_verb::get:
        if (!found()) {
          if (c.waits.size() >= waits_limit) return progress::ended;
          c.waits.push_back({q.id, std::string{key}});
          return progress::going_on;
        }
        break;
      case wire::store_verb::try_get:
        found();
        break;
      case wire::store_verb::add:
        p.answer = change(key, [&](auto& t) { return t.add(key, q.number, p.number); });
        break;
      case wire::store_verb::compare_set:
        p.answer = change(key, [&](auto& t) { return t.compare_set(key, expected, value); });
        if (p.answer == wire::store_answer::ok) found();
        break;
      case wire::store_verb::erase:
        p.answer = table_.erase(key) ? wire::store_answer::ok : wire::store_answer::absent;
        break;
      case wire::store_verb::cancel:
        c.forget(q.id);
        return progress::going_on;
      case wire::store_verb::goodbye:
        return progress::ended;
    }
    p.value_bytes = static_cast<std::uint32_t>(back.size());
    c.respond(p, back);
    return progress::going_on;
  }

  /// Answers all clients that wait for `key`.
  void wake(std::string_view key) {
    const auto* value = table_.find(key);
    for (auto& [id, connected] : connections_) {
      connection& c = *connected;
      const std::size_t before = c.waits.size();
      for (std::size_t i = 0; i < c.waits.size();) {
        if (c.waits[i].key != key) {
          ++i;
          continue;
        }
        c.respond({wire::store_answer::ok, static_cast<std::uint32_t>(value->size()), c.waits[i].request, 0}, *value);
        c.waits.erase(c.waits.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (c.waits.size() == before) continue;
      // The next event of a broken connection closes it. Here it may be the one whose request is being handled.
      static_cast<void>(c.flush());
      rearm(id, c);
    }
  }

  void rearm(std::uint64_t id, connection& c) {
    if (c.armed == c.wanted()) return;
    c.armed = c.wanted();
    poller_.modify(c.native(), c.armed, id);
  }

  void drop(std::uint64_t id) noexcept {
    pending_.remove(id);
    connections_.erase(id);
    keep_spare();
  }
  /// Keeps a spare descriptor, to accept and refuse one more connection with a reason if none is left.
  void keep_spare() noexcept {
    if (!spare_) spare_ = os::fd{::fcntl(listener_.native(), F_DUPFD_CLOEXEC, 3)};
    spare_.end_in_children();
  }

  void drop_expired() {
    const deadline now = clock::now();
    for (const auto* p = pending_.first(); p != nullptr && p->expires <= now; p = pending_.first()) drop(p->id);
  }

  tcp_store_options options_;
  key_value_table table_;
  os::fd listener_, spare_;
  os::poller poller_;
  os::endpoint endpoint_;
  std::string unix_file_;
  ::pid_t owner_ = ::getpid();
  wire::handshake_terms terms_;
  std::size_t pending_limit_ = 64;
  std::uint64_t last_id_ = listener_token;
  std::map<std::uint64_t, std::unique_ptr<connection>> connections_;
  detail::pending_connections pending_;
  std::vector<std::uint32_t> ranks_;  // ascending
  deadline paused_until_{};
  int exhausted_ = 0;
  std::size_t refused_ = 0;
  wire::refusal last_refusal_ = wire::refusal::none;
  wire::handshake_counterpart last_refused_;
};

}  // namespace tutti
