#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tutti/os/poller.hpp>
#include <tutti/transport/tcp/connection.hpp>
#include <tutti/transport/tcp/link.hpp>
#include <tutti/transport/tcp/poller.hpp>
#include <tutti/transport/tcp/polling_rhythm.hpp>
#include <tutti/transport/tcp/stream.hpp>

namespace tutti::detail {

/// Epoll policy: keeps connections registered with the poller, except those of peers that a busy rank waits for and
/// polls directly. The poller and the links outlive it.
class tcp_watch {
 public:
  using side = tcp_stream::side;

  tcp_watch(tcp_poller& poller, std::vector<tcp_link>& links) noexcept : poller_(poller), links_(links) {}
  tcp_watch(const tcp_watch&) = delete;
  tcp_watch& operator=(const tcp_watch&) = delete;

  /// Updates the registration of a connection whose wanted() has changed.
  void renew(int p, int rail, side s) noexcept {
    const tcp_connection& r = link(p).stream->at(rail, s);
    if (!r.socket) return;
    const os::interest what = r.wanted();
    if (what == os::interest::none || (what == os::interest::read && link(p).unwatched))
      poller_.forget(r.socket.native());
    else
      poller_.watch(r.socket.native(), s == side::ours ? tcp_poller::source::out : tcp_poller::source::in,
                    poller_.index(p, rail), what);
  }
  /// Updates the registration of all connections of a peer.
  void renew(int p) noexcept {
    for (int k = 0; k < link(p).stream->rails(); ++k)
      for (const side s : {side::ours, side::theirs}) renew(p, k, s);
  }

  /// Records a poll, by when `received` bytes have come in all. Returns true if the poller should be asked, too.
  [[nodiscard]] bool is_due(std::uint64_t received) noexcept {
    rhythm_.note(received);
    if (rhythm_.is_lost()) all();
    return rhythm_.look_is_due();
  }
  /// Prepares this rank's sleep: registers all and sends what was written.
  void prepare_sleep() noexcept {
    for (tcp_link& l : links_)
      if (l.stream) l.stream->push();
    all();
  }
  /// Leaves these peers to the caller, which polls them with each poll. If that has found something often enough, they
  /// are registered only for room to write, until nothing comes for long, or all() or one() is called.
  void leave_to_polls(std::span<const int> peers) noexcept {
    if (!rhythm_.is_found()) return;
    rhythm_.begin_again();
    some_out_ = true;
    for (const int p : peers) {
      link(p).unwatched = true;
      renew(p);
    }
  }
  /// Registers the connections of a peer again.
  void one(int p) noexcept {
    if (std::exchange(link(p).unwatched, false)) renew(p);
  }
  /// Registers the connections of all peers again.
  void all() noexcept {
    rhythm_.begin_again();
    if (!std::exchange(some_out_, false)) return;
    for (int p = 0; p < static_cast<int>(links_.size()); ++p) one(p);
  }

 private:
  [[nodiscard]] tcp_link& link(int p) const noexcept { return links_[static_cast<std::size_t>(p)]; }

  tcp_poller& poller_;
  std::vector<tcp_link>& links_;
  polling_rhythm rhythm_;
  bool some_out_ = false;
};

}  // namespace tutti::detail
