#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <tutti/transport/messaging/channel.hpp>
#include <tutti/transport/messaging/link_core.hpp>

namespace tutti {

/// Endpoint of a rank: a channel to every other rank. A transport derives from it, and adds set-up, liveness and sleep.
/// All calls are made under the engine's lock.
template <byte_stream P>
class mesh : public link_core {
 public:
  mesh(int rank, int size) : rank_(rank), channels_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(channels_.size()); }

  /// Starts to send a message. The returned awaitable finishes when `out` may be changed; `out` stays valid until then.
  /// If the two ranks give different values of `call` in one operation, the world fails with errc::mismatch; 0 is not
  /// compared.
  auto send(int peer, std::uint64_t tag, std::span<const std::byte> out, std::uint16_t call = 0) noexcept {
    // NOLINTNEXTLINE: a transfer only reads what it sends
    return started_transfer{
        *this, peer, tag, {const_cast<std::byte*>(out.data()), out.size()}, call, &detail::channel<P>::send};
  }

  /// Starts to receive the next message of this tag from `peer`, which must be as long as `in`. `in` stays valid until
  /// the returned awaitable has finished.
  auto recv(int peer, std::uint64_t tag, std::span<std::byte> in, std::uint16_t call = 0) noexcept {
    return started_transfer{*this, peer, tag, in, call, &detail::channel<P>::recv};
  }

  /// Starts to receive the first message of this tag that a rank of `among` sends or has sent; if `among` is empty, any
  /// other rank. The returned awaitable's from() is its sender. A message that a recv() waits for goes to that recv().
  /// `among` and `in` stay valid until the awaitable has finished.
  auto recv_any(std::span<const int> among, std::uint64_t tag, std::span<std::byte> in) noexcept {
    return receiving_any{*this, among, tag, in};
  }

  /// Logs a collective that this rank begins. If a message of a peer belongs to the same operation but another call, or
  /// is left over from a call that has ended here, the world fails with errc::mismatch, at the next message or poll.
  /// `in_flight(tag)` returns true for calls that have not ended.
  template <class InFlight>
  void note_call(const call_log::entry& c, InFlight in_flight) noexcept {
    for (int peer = 0; peer < size() && cause().ok(); ++peer) {
      const auto* from = channel(peer);
      if (!from) continue;
      status s = from->suspect_left_over(in_flight);
      if (s.ok()) s = from->suspect_earlier(c);
      if (!s.ok()) remember(peer, s);
    }
    calls_.note(c);
  }
  /// Looks up calls that were not logged in `w`, too, until forget(w).
  void ask_also(call_log::source& w) noexcept { calls_.ask_also(w); }
  void forget(call_log::source& w) noexcept { calls_.forget(w); }
  /// Returns true if routines wait for a poll, or if it will pass on a failure.
  [[nodiscard]] bool has_ready() const noexcept { return link_core::has_ready() || !late_.ok(); }
  /// Asks the peer that this operation, a logged collective, waits for whether it has called the same. If it has called
  /// another one in its place, it fails the world with errc::mismatch, which the two may not find otherwise if they
  /// exchange no message. Other peers are not asked: to ranks outside the group, the sequence number means something
  /// else.
  void ask(const detail::routine_promise* work, std::uint64_t tag) noexcept {
    const int peer = cause().ok() ? channel_waits_for(work) : -1;
    if (peer < 0 || !channel(peer)) return;
    if (const call_log::entry* call = calls_.find(tag))
      if (const status s = channel(peer)->ask(*call); !s.ok()) remember(peer, s);
  }

 protected:
  /// Makes the channel to `peer`; `args` construct its byte stream.
  template <class... Args>
  void connect(int peer, Args&&... args) {
    channels_[static_cast<std::size_t>(peer)] =
        std::make_unique<detail::channel<P>>(ready_, early_, std::forward<Args>(args)...);
    channel(peer)->share(peer, from_any_, calls_);
  }
  [[nodiscard]] detail::channel<P>* channel(int peer) const noexcept {
    return channels_[static_cast<std::size_t>(peer)].get();
  }

  /// Moves bytes and resumes routines; returns true if anything moved. The failure of a channel goes to
  /// `on_failure(status)`, which may call fail_all.
  template <class OnFailure>
  bool poll_channels(OnFailure on_failure) noexcept {
    bool moved = false;
    if (const status s = std::exchange(late_, status{}); !s.ok() && failure().ok()) on_failure(s);
    if (failure().ok()) {
      moved = poll_conditions();
      for (int peer = 0; peer < size() && failure().ok(); ++peer) {
        detail::channel<P>* c = channel(peer);
        if (!c) continue;
        if (status s = c->progress(moved); !s.ok()) on_failure(found(peer, s));
      }
    }
    return ready_.run() || moved;
  }

  /// Takes what a peer left behind before it ended. Returns true if something still waits for that peer.
  bool still_needs(int peer) noexcept {
    bool moved = false;
    detail::channel<P>* c = channel(peer);
    if (!c || !failure().ok()) return false;
    if (status s = c->progress(moved); !s.ok()) {
      remember(peer, s);
      return false;
    }
    poll_conditions();
    c->note_gone();
    return c->waits() || condition_waits_on(peer) || waits_for_nobody();
  }

  /// Fails all channels and conditions with `why`. Returns false if there was a failure before.
  bool fail_all(status why) noexcept {
    if (!fail(why)) return false;
    for (auto& c : channels_)
      if (c) c->fail(why);
    while (detail::pending* p = from_any_.front()) ready_.complete(*p, why);
    return true;
  }

  /// Returns the peer that this operation waits for, in shared memory or for a message; -1 if there is none.
  [[nodiscard]] int channel_waits_for(const detail::routine_promise* work) const noexcept {
    if (const int peer = condition_waits_for(work); peer >= 0) return peer;
    for (int peer = 0; peer < size(); ++peer)
      if (channel(peer) && channel(peer)->holds(work)) return peer;
    return -1;
  }

 private:
  using way_to_start = status (detail::channel<P>::*)(detail::transfer&) noexcept;
  struct started_transfer : detail::transfer {
    started_transfer(mesh& m, int peer, std::uint64_t t, std::span<std::byte> s, std::uint16_t short_id,
                     way_to_start how) noexcept
        : transfer(t, s.data(), s.size(), short_id) {
      m.begin(*this, peer, how);
    }
  };
  struct receiving_any : detail::transfer {
    std::span<const int> among;
    receiving_any(mesh& m, std::span<const int> ranks, std::uint64_t t, std::span<std::byte> s) noexcept
        : transfer(t, s.data(), s.size()), among(ranks) {
      m.begin_any(*this, t);
    }
  };

  /// Calls `visit(peer, channel)` for every rank that the message may come from, until that returns true. Returns true
  /// if it did.
  template <class Visit>
  bool visit_sources(const receiving_any& t, int first, Visit visit) const {
    const int n = t.among.empty() ? size() : static_cast<int>(t.among.size());
    for (int i = 0; i < n; ++i) {
      const int k = (first + i) % n, peer = t.among.empty() ? k : t.among[static_cast<std::size_t>(k)];
      if (channel(peer) && visit(peer, *channel(peer))) return true;
    }
    return false;
  }
  void begin_any(receiving_any& t, std::uint64_t tag) noexcept {
    if (const status why = cause(); !why.ok()) return ready_.complete(t, why);
    const auto take = [&](int peer, detail::channel<P>& c) {
      if (!c.offers(tag)) return false;
      begin(t, peer, &detail::channel<P>::recv);
      return true;
    };
    // The ranks take turns at being asked first, so that none is always last.
    if (visit_sources(t, next_source_ = (next_source_ + 1) % size(), take)) return;
    from_any_.push_back(t);
    visit_sources(t, 0, [](int, detail::channel<P>& c) {
      c.stream().open();
      return false;
    });
  }
  /// Returns true if a receive from any peer waits although all its senders are gone.
  [[nodiscard]] bool waits_for_nobody() const noexcept {
    for (detail::pending* p = from_any_.front(); p; p = detail::pending_list::after(*p))
      if (!visit_sources(static_cast<receiving_any&>(*p), 0, [](int, detail::channel<P>& c) { return !c.gone(); }))
        return true;
    return false;
  }

  void begin(detail::transfer& t, int peer, way_to_start start) noexcept {
    if (const status why = cause(); !why.ok()) return ready_.complete(t, why);
    if (status s = (channel(peer)->*start)(t); !s.ok()) {
      // A routine runs now: the next poll passes the failure on to all others.
      s = remember(peer, s);
      if (!t.finished()) channel(peer)->finish(t, s);
    }
  }

  /// Returns the failure, which a poll may have passed on or not.
  [[nodiscard]] status cause() const noexcept { return failure().ok() ? late_ : failure(); }
  // Keeps a failure that was found outside of poll_channels, until the next poll passes it on.
  status remember(int peer, status s) noexcept {
    s = found(peer, s);
    if (late_.ok()) late_ = s;
    return s;
  }
  /// Completes a failure of the channel of `peer` by the rank at fault: the peer, or this rank if memory is short. A
  /// failure that was reported names the rank at fault or nobody; the peer that reports it is not at fault.
  [[nodiscard]] status found(int peer, status s) const noexcept {
    if (s.peer >= 0 || channel(peer)->was_told()) return s;
    s.peer = s.code == errc::out_of_resources ? rank_ : peer;
    if (s.code == errc::mismatch) s.other = message_mismatch::finder_of(rank_);
    return s;
  }

  int rank_;
  detail::early_places early_;
  std::vector<std::unique_ptr<detail::channel<P>>> channels_;
  detail::pending_list from_any_;
  call_log calls_;
  int next_source_ = 0;
  status late_{};
};

}  // namespace tutti
