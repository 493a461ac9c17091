#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/event_fd.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/transport/messaging/tag.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/tcp/acceptor.hpp>
#include <tutti/transport/tcp/connector.hpp>
#include <tutti/transport/tcp/last_calls.hpp>
#include <tutti/transport/tcp/link.hpp>
#include <tutti/transport/tcp/listener.hpp>
#include <tutti/transport/tcp/options.hpp>
#include <tutti/transport/tcp/poller.hpp>
#include <tutti/transport/tcp/sockets.hpp>
#include <tutti/transport/tcp/stream.hpp>
#include <tutti/wire/pending_places.hpp>

namespace tutti {

/// TCP connections of one rank: opens them when a byte stream asks, accepts those of peers only, watches all of them,
/// and fails the stream of a peer that is gone. Called under the engine's lock, except for park() and unpark().
class tcp_domain final : private tcp_stream::keeper {
  using tcp_link = detail::tcp_link;
  using control_message = detail::control_message;
  using tcp_poller = detail::tcp_poller;

 public:
  /// Throws usage_error if the arguments contradict each other, error{unsupported} if nothing computes HMACs.
  tcp_domain(tcp_listener listener, roster peers, int rank, tcp_job job, const tcp_options& options = {})
      : peers_(std::move(peers)),
        rank_(rank),
        job_(std::move(job)),
        options_(detail::checked(options)),
        listener_(std::move(listener)),
        acceptor_((std::max)(wire::few_pending_places(), (3 + options.connections) * size()), own_terms(),
                  options.handshake),
        links_(peers_.size()),
        straggler_(rank, size()),
        poller_(options_.connections),
        connector_(poller_, options_, own_terms()) {
    if (rank < 0 || rank >= size())
      throw usage_error("rank " + std::to_string(rank) + " is not in a world of " + std::to_string(size()));
    detail::check_secret(job_, listener_, rank);
    listener_.end_in_children();
    detail::tune_listener(listener_.native(), options_);
    poller_.add(listener_.native(), source::listener);
    poller_.add(waker_.native(), source::waker);
  }
  tcp_domain(const tcp_domain&) = delete;
  tcp_domain& operator=(const tcp_domain&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(peers_.size()); }
  [[nodiscard]] const rank_info& who(int p) const noexcept { return peers_[static_cast<std::size_t>(p)]; }
  [[nodiscard]] keeper& stream_keeper() noexcept { return *this; }
  /// Return the number of rails that the streams must have, and of attempts to connect that were started again.
  [[nodiscard]] int connections() const noexcept { return options_.connections; }
  [[nodiscard]] std::uint64_t retries() const noexcept { return connector_.retries(); }

  /// Takes care of a peer's stream, which outlives the last call. Throws usage_error if the roster lacks its endpoint.
  void add(int p, tcp_stream& stream) {
    const std::string& where = who(p).endpoint;
    if (where.empty()) throw usage_error(tutti::describe(who(p)) + " does not listen on TCP, but has to be reached so");
    const auto [address, port] = os::split_host_port(where);
    link(p).address = os::resolve(address, port).front();
    link(p).stream = &stream;
  }
  /// Lets a park end when the eventfd `bell` is readable, too.
  void listen_to(int bell) {
    bell_ = bell;
    poller_.add(bell, source::bell);
  }

  /// Handles events; returns true if there were any but arrivals for streams. If few peers are awaited, it has their
  /// sockets tried, and asks epoll only now and then. `awaits(peer)`: a transfer is pending.
  template <class Awaits>
  bool poll(Awaits awaits) noexcept {
    constexpr int most_tried = 4;
    constexpr std::uint32_t polls_per_look = 32;
    int awaited = 0;
    std::array<int, most_tried> tried;
    for (int p = 0; p < size(); ++p) {
      if (!link(p).stream) continue;
      link(p).stream->push();
      if (!awaits(p)) continue;
      if (awaited < most_tried) tried[static_cast<std::size_t>(awaited)] = p;
      ++awaited;
    }
    const bool few = awaited > 0 && awaited <= most_tried;
    const bool look_is_due = ++polls_ % polls_per_look == 0;
    const bool moved = (!few || look_is_due || look_soon_ || connector_.busy()) && look();
    if (!few) return moved;
    // A look takes the socket's lock, and the kernel needs that to deliver what is looked for: hence the pauses.
    for (int i = 0; i < 4; ++i) detail::cpu_pause();
    for (const int p : std::span{tried}.first(static_cast<std::size_t>(awaited))) link(p).stream->try_now();
    return moved;
  }

  /// Checks deadlines and peers. `awaits(peer)`: a transfer is pending; `left(peer)`: it said goodbye in its stream.
  template <class Awaits, class Left>
  void tick(deadline now, Awaits awaits, Left left) noexcept {
    acceptor_.expire(now);
    if (std::exchange(listener_paused_, false)) poller_.watch(listener_.native(), source::listener, 0);
    int lost = -1;
    for (int p = 0; p < size(); ++p) {
      tcp_link& l = link(p);
      if (!l.stream) continue;
      connector_.tick(l, p, now, [this] { return cause_.ok() && !closing_; });
      l.note(now);
      l.awaited = awaits(p);
      if (l.died(who(p), who(rank_), now)) l.suspect(0, 0);
      if (l.suspected_for(options_.grace, now) && !left(p) && (lost < 0 || l.suspected < link(lost).suspected))
        lost = p;
    }
    if (!cause_.ok() || closing_) return;
    if (const int error = acceptor_.starved(); error != 0)
      for (tcp_link& l : links_)
        if (l.stream) l.stream->fail({errc::out_of_resources, 0, rank_, static_cast<std::uint64_t>(error)});
    if (lost >= 0) link(lost).stream->fail(link(lost).lost(who(lost), who(rank_)));
    const int straggler = straggler_.find([&](int p) { return link(p).stalled(now); }, now);
    if (const auto whom = straggler_.announce(straggler, now))
      tell({control_message::kind::waiting, {errc::ok, 0, *whom, issued_}});
  }

  void note_issue(std::uint64_t sequence) noexcept { issued_ = sequence; }
  void note_end(std::uint64_t calls, std::uint64_t hash) noexcept { bye_ = detail::goodbye_after(calls, hash); }
  [[nodiscard]] bool gone_in_order(int p) const noexcept { return link(p).gone_in_order(); }

  /// Returns the straggler among the peers for which `awaits` holds and those that they wait for; -1 for none.
  template <class Awaits>
  [[nodiscard]] int straggler(Awaits awaits) const noexcept {
    return straggler_.find(awaits, clock::now());
  }

  /// Tells every connected peer why this rank failed. Peers that connect later are told then.
  void abort(status why) noexcept {
    if (!cause_.ok()) return;
    cause_ = why;
    say_last_word();
  }

  /// Handles events until `sent()`, or until the time for a goodbye since `began` is over. Connects to 32 peers at most
  /// that this rank has never met, which would take its closed listener for that of a dead rank.
  template <class Sent>
  void prepare_to_leave(deadline began, Sent sent) noexcept {
    constexpr int most = 32;
    for (int i = 1, n = 0; i < size() && n < most; ++i) {
      const int p = (rank_ + i) % size();
      tcp_link& l = link(p);
      if (!l.stream || l.bye || l.error != 0 || l.stream->standing() != 0) continue;
      connector_.open(l, p, 1);
      ++n;
    }
    linger(began, [&] { return sent() && !connector_.busy(); });
  }
  /// Ends every connection once what was written has reached the peers, or the time for a goodbye is over.
  void close(deadline began) noexcept {
    if (std::exchange(closing_, true)) return;
    if (cause_.ok()) say_last_word();
    for (tcp_link& l : links_)
      if (l.stream) l.stream->leave();
    // Held connections are watched, too: their end tells that nobody is there to take the last control message.
    for (int p = 0; p < size(); ++p)
      for (int k = 0; link(p).stream && k < connections(); ++k)
        for (const role r : tcp_stream::roles) watch(p, k, r);
    linger(began, [this] { return !connector_.busy() && everything_delivered(); });
    // If two ranks end at the same time, one at least hears the other here.
    for (int p = 0; p < size(); ++p)
      for (int k = 0; link(p).stream && k < connections(); ++k) read_control(p, k);
    if (cause_.ok()) detail::log_difference(bye_, links_, peers_, rank_);
    connector_.give_up();
    listener_.close();
    acceptor_.clear();
    for (tcp_link& l : links_)
      if (l.stream) l.stream->close();
  }

  void prepare_park() noexcept { push_all(); }
  void park(duration at_most) noexcept {
    const std::scoped_lock parked(parking_);
    (void)poller_.wait(at_most);
    look_soon_ = true;
  }
  void unpark() noexcept { waker_.notify(); }

  /// Returns "rank 3 (host b, pid 712), last seen at #39 31 s ago"; without the number if none is known.
  [[nodiscard]] std::string describe(int p, std::uint64_t last_sequence) const {
    return tutti::describe(who(p)) +
           (link(p).stream ? link(p).describe(connector_.terms(p), whole(last_sequence), cause_.code) : "");
  }

 private:
  using source = tcp_poller::source;
  using role = tcp_stream::role;

  void push_all() noexcept {
    for (tcp_link& l : links_)
      if (l.stream) l.stream->push();
  }
  template <class Done>
  void linger(deadline began, Done done) noexcept {
    push_all();
    waker_.notify();
    const std::scoped_lock parked(parking_);
    while (!done() && clock::now() - began < options_.goodbye)
      for (const os::ready_event& e : poller_.wait(std::chrono::milliseconds{2})) handle(e);
  }

  [[nodiscard]] std::uint64_t whole(std::uint64_t last) const noexcept {
    return last == 0 ? 0 : tag::whole_sequence(last, issued_);
  }

  [[nodiscard]] tcp_link& link(int p) noexcept { return links_[static_cast<std::size_t>(p)]; }
  [[nodiscard]] const tcp_link& link(int p) const noexcept { return links_[static_cast<std::size_t>(p)]; }

  static constexpr source source_of(role r) noexcept { return r == role::data ? source::data : source::control; }

  bool look() noexcept {
    look_soon_ = false;
    bool moved = false;
    for (const os::ready_event& e : poller_.wait(duration{0})) {
      handle(e);
      moved = moved || tcp_poller::source_of(e) != source::data;
    }
    return moved;
  }

  void handle(const os::ready_event& e) noexcept {
    const int p = poller_.peer_of(e), rail = poller_.rail_of(e);
    switch (tcp_poller::source_of(e)) {
      case source::listener:
        look_soon_ = true;
        if (acceptor_.accept_some(listener_.native(), poller_.underlying(), tcp_poller::token(source::handshake),
                                  clock::now()))
          return;
        // Without descriptors, the connections that wait at the listener would wake this rank again and again.
        poller_.forget(listener_.native());
        listener_paused_ = true;
        return;
      case source::waker:
        waker_.drain();
        return;
      case source::bell:
        drain_bell();
        return;
      case source::handshake:
        if (auto peer = acceptor_.continue_handshake(static_cast<std::size_t>(tcp_poller::index_of(e))))
          admit(std::move(*peer));
        return;
      case source::attempt:
        look_soon_ = true;
        return connector_.advance(link(p), p, rail);
      case source::data:
        return attend(p, rail, role::data, e);
      case source::control:
        return attend(p, rail, role::control, e);
    }
  }
  void attend(int p, int rail, role r, const os::ready_event& e) noexcept {
    tcp_stream& stream = *link(p).stream;
    if (e.writable) stream.room(rail, r);
    if (e.readable && r == role::control) control_arrived(p, rail);
    if (e.readable && r == role::data) stopped() ? stream.discard(rail) : stream.arrived(rail);
    // A stream that its channel holds back would otherwise end every park at once.
    if (e.writable || stream.at(rail, r).wanted() != os::interest::read) watch(p, rail, r);
  }
  [[nodiscard]] bool stopped() const noexcept { return !cause_.ok() || closing_; }

  [[nodiscard]] wire::handshake_terms own_terms() const noexcept {
    wire::handshake_terms t = job_.terms(rank_, size());
    t.connections = static_cast<std::uint16_t>(options_.connections);
    return t;
  }

  void drain_bell() const noexcept {
    std::uint64_t rings = 0;
    (void)!::read(bell_, &rings, sizeof rings);
  }

  void open(int p) noexcept override {
    if (link(p).stream && !stopped()) connector_.open(link(p), p, connections());
  }
  void watch(int p, int rail, role r) noexcept override {
    const detail::tcp_connection& c = link(p).stream->at(rail, r);
    if (!c.socket) return;
    if (const os::interest what = c.wanted(); what == os::interest::none)
      poller_.forget(c.socket.native());
    else
      poller_.watch(c.socket.native(), source_of(r), poller_.index(p, rail), what);
  }
  void broken(int p, int rail, int error) noexcept override {
    if (!link(p).bye && !closing_) link(p).suspect(error, rail);
    for (const role r : tcp_stream::roles)
      if (!link(p).stream->at(rail, r).can_read()) watch(p, rail, r);
  }
  void read_control(int p, int rail) noexcept {
    tcp_link& l = link(p);
    while (const auto n = l.stream->next_control_message(rail)) {
      l.heard = clock::now();
      switch (n->what) {
        case control_message::kind::abort:
          l.stream->fail(n->why);
          break;
        case control_message::kind::bye:
          l.bye = true;
          l.called = n->why;
          break;
        case control_message::kind::waiting:
          l.issued = n->why.detail;
          straggler_.record(p, n->why.peer, clock::now());
          break;
      }
    }
  }
  void control_arrived(int p, int rail) noexcept {
    tcp_link& l = link(p);
    read_control(p, rail);
    // A rank that fails or leaves says so first, on this connection; one that says nothing has died.
    if (l.stream->control_end(rail) == tcp_stream::ending::closed && !l.bye) l.stream->fail(l.lost(who(p), who(rank_)));
  }

  void admit(detail::tcp_acceptor::peer g) noexcept {
    look_soon_ = true;
    if (g.rank < 0 || g.rank >= size() || !link(g.rank).stream) return;
    tcp_stream& stream = *link(g.rank).stream;
    const role r = stream.opened_there();
    if (stream.at(g.rail, r).socket) return;
    r == role::data ? detail::tune_data(g.connection.native(), options_)
                    : detail::tune_control(g.connection.native(), options_);
    poller_.watch(g.connection.native(), source_of(r), poller_.index(g.rank, g.rail));
    try {
      stream.use(std::move(g.connection), g.rail, r);
    } catch (const std::bad_alloc&) {
      return link(g.rank).suspect(ENOMEM, g.rail);
    }
    if (!stopped()) return stream.open();
    // It must hear the last word: on the other connection, unless it has opened that one.
    if (r == role::data) connector_.open(link(g.rank), g.rank, connections());
  }
  void say_last_word() noexcept {
    const control_message last = cause_.ok() ? bye_ : control_message{control_message::kind::abort, cause_};
    for (tcp_link& l : links_)
      if (l.stream) l.stream->tell_last(last);
  }

  void tell(const control_message& n) noexcept {
    for (tcp_link& l : links_)
      if (l.stream) l.stream->tell(n);
  }

  [[nodiscard]] bool is_gone(int p) const noexcept {
    const errc c = cause_.code;
    return p == cause_.peer && (c == errc::peer_lost || c == errc::peer_left || c == errc::timed_out);
  }
  [[nodiscard]] bool everything_delivered() const noexcept {
    for (int p = 0; p < size(); ++p) {
      const tcp_stream* stream = link(p).stream;
      if (!stream) continue;
      if (!stream->delivered(role::control) || (cause_.ok() && !stream->delivered(role::data))) return false;
      // A peer that is connecting must hear the cause; otherwise it would take the closed listener for one.
      if (!cause_.ok() && !stream->at(0, role::control).socket && !is_gone(p)) return false;
    }
    return true;
  }

  roster peers_;
  int rank_;
  tcp_job job_;
  tcp_options options_;
  tcp_listener listener_;
  detail::tcp_acceptor acceptor_;
  std::vector<tcp_link> links_;
  detail::straggler_detector straggler_;
  tcp_poller poller_;
  detail::tcp_connector connector_;
  os::event_fd waker_;
  int bell_ = -1;
  std::mutex parking_;  // held while the poller waits without the engine's lock
  bool look_soon_ = true, listener_paused_ = false, closing_ = false;
  std::uint32_t polls_ = 0;
  std::uint64_t issued_ = 0;
  control_message bye_{};
  status cause_{};
};

}  // namespace tutti
