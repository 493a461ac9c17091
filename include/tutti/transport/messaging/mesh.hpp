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

/// Every rank with a pipe to every other: the messages of a transport. The transport adds set-up, liveness and sleep.
template <byte_stream P>
class mesh : public link_core {
 public:
  mesh(int rank, int size) : rank_(rank), channels_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(channels_.size()); }

  /// Starts a message; it is the receiver's to take when the transfer has finished locally. `out` stays valid until
  /// then. Messages of one operation in which the two ranks differ by `call` are errc::mismatch; 0 is not compared.
  auto send(int peer, std::uint64_t tag, std::span<const std::byte> out, std::uint16_t call = 0) noexcept {
    // NOLINTNEXTLINE: a transfer only reads what it sends
    return started_transfer{
        *this, peer, tag, {const_cast<std::byte*>(out.data()), out.size()}, call, &detail::channel<P>::send};
  }

  auto recv(int peer, std::uint64_t tag, std::span<std::byte> in, std::uint16_t call = 0) noexcept {
    return started_transfer{*this, peer, tag, in, call, &detail::channel<P>::recv};
  }

  /// Receives the first message of this tag that one of `among` sends or has sent; all other ranks if that is empty.
  /// The transfer's from() tells whose it was. Messages that a recv() waits for are that one's. `among` stays valid.
  auto recv_any(std::span<const int> among, std::uint64_t tag, std::span<std::byte> in) noexcept {
    return receiving_any{*this, among, tag, in};
  }

  /// This rank begins a collective. A peer's message of it that says another one, or one that is left of a call that
  /// has ended here, fails it at its first message, or at the next poll. `in_flight(tag)` tells which calls have not
  /// ended.
  template <class InFlight>
  void note_call(const call_log::entry& c, InFlight in_flight) noexcept {
    for (int peer = 0; peer < size() && trouble().ok(); ++peer) {
      const auto* from = channel(peer);
      if (!from) continue;
      status s = from->suspect_left_over(in_flight);
      if (s.ok()) s = from->suspect_earlier(c);
      if (!s.ok()) remember(peer, s);
    }
    calls_.note(c);
  }
  void ask_also(call_log::source& w) noexcept { calls_.ask_also(w); }
  void forget(call_log::source& w) noexcept { calls_.forget(w); }
  /// True if routines wait for a poll, or a failure that it will deal out.
  [[nodiscard]] bool has_ready() const noexcept { return link_core::has_ready() || !late_.ok(); }
  /// Asks the peer that this operation, a collective that was noted, itself waits for, if there is one. Nobody else:
  /// its number means something else to ranks that are not in its group. If that one has called another in its place,
  /// it fails the world with errc::mismatch: they may exchange no message that tells.
  void ask(const detail::routine_promise* work, std::uint64_t tag) noexcept {
    const int peer = trouble().ok() ? channel_waits_for(work) : -1;
    if (peer < 0 || !channel(peer)) return;
    if (const call_log::entry* call = calls_.find(tag))
      if (const status s = channel(peer)->ask(*call); !s.ok()) remember(peer, s);
  }

 protected:
  template <class... Args>
  void connect(int peer, Args&&... args) {
    channels_[static_cast<std::size_t>(peer)] =
        std::make_unique<detail::channel<P>>(ready_, early_, std::forward<Args>(args)...);
    channel(peer)->share(peer, from_any_, calls_);
  }
  [[nodiscard]] detail::channel<P>* channel(int peer) const noexcept {
    return channels_[static_cast<std::size_t>(peer)].get();
  }

  /// Moves bytes and resumes routines; a failed channel goes to `on_failure(status)`, which may call fail_all.
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

  /// For a peer that will store and send nothing more: after taking what it left behind, is anything still waited for?
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

  bool fail_all(status why) noexcept {
    if (!fail(why)) return false;
    for (auto& c : channels_)
      if (c) c->fail(why);
    while (detail::pending* p = from_any_.front()) ready_.complete(*p, why);
    return true;
  }

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

  /// Calls `visit(peer, channel)` for everyone that it may come from until that returns true; true if it did.
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
    if (const status why = trouble(); !why.ok()) return ready_.complete(t, why);
    const auto take = [&](int peer, detail::channel<P>& c) {
      if (!c.offers(tag)) return false;
      begin(t, peer, &detail::channel<P>::recv);
      return true;
    };
    // Everyone's turn to be the first to be asked.
    if (visit_sources(t, next_source_ = (next_source_ + 1) % size(), take)) return;
    from_any_.push_back(t);
    visit_sources(t, 0, [](int, detail::channel<P>& c) {
      c.stream().open();
      return false;
    });
  }
  [[nodiscard]] bool waits_for_nobody() const noexcept {
    for (detail::pending* p = from_any_.front(); p; p = detail::pending_list::after(*p))
      if (!visit_sources(static_cast<receiving_any&>(*p), 0, [](int, detail::channel<P>& c) { return !c.gone(); }))
        return true;
    return false;
  }

  void begin(detail::transfer& t, int peer, way_to_start start) noexcept {
    if (const status why = trouble(); !why.ok()) return ready_.complete(t, why);
    if (status s = (channel(peer)->*start)(t); !s.ok()) {
      // Found while a routine runs: the failure of everything is dealt out by the next poll.
      s = remember(peer, s);
      if (!t.finished()) channel(peer)->finish(t, s);
    }
  }

  /// The failure, dealt out or not.
  [[nodiscard]] status trouble() const noexcept { return failure().ok() ? late_ : failure(); }
  // A failure found outside of poll_channels; dealt out by the next poll.
  status remember(int peer, status s) noexcept {
    s = found(peer, s);
    if (late_.ok()) late_ = s;
    return s;
  }
  /// What was found in the channel of `peer` is about the peer, or about this rank's memory. What a peer told names
  /// whoever is at fault, or nobody: never the messenger.
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
