#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/os/process.hpp>
#include <tutti/transport/messaging/mesh.hpp>
#include <tutti/transport/tcp/domain.hpp>

namespace tutti {

/// Transport over TCP for every pair of ranks, on one machine or on several. Connections are opened with the first
/// transfer.
class tcp_transport : public mesh<tcp_stream> {
 public:
  /// Takes the whole world in rank order, and the listener whose endpoint is this rank's there. Throws usage_error if
  /// they do not fit together, error{unsupported} if there is a secret but nothing that computes HMACs.
  tcp_transport(tcp_listener listener, roster peers, int rank, tcp_job job, const tcp_options& options = {})
      : mesh(rank, static_cast<int>(peers.size())),
        domain_(std::move(listener), std::move(peers), rank, std::move(job), options),
        ranks_per_core_(tutti::ranks_per_core(domain_.who(rank))) {
    for (int p = 0; p < size(); ++p) {
      if (p == rank) continue;
      connect(p, domain_.stream_keeper(), rank, p, domain_.connections());
      domain_.add(p, channel(p)->stream());
    }
  }
  tcp_transport(const tcp_transport&) = delete;
  tcp_transport& operator=(const tcp_transport&) = delete;
  ~tcp_transport() { leave(); }

  bool poll() noexcept {
    const bool moved = domain_.poll([this](int p) { return channel(p)->waits(); });
    return poll_channels([this](const status& s) { abort(s); }) || moved;
  }
  void tick(deadline now) noexcept {
    domain_.tick(now, [this](int p) { return channel(p)->waits(); }, [this](int p) { return channel(p)->said_bye(); });
    for (int p = 0; p < size(); ++p)
      if (channel(p) && (channel(p)->said_bye() || domain_.gone_in_order(p)) && still_needs(p))
        abort({errc::peer_left, 0, p, 0});
  }
  void abort(status why) noexcept {
    if (!fail_all(why)) return;
    domain_.abort(why);
    for (int p = 0; p < size(); ++p)
      if (channel(p)) channel(p)->say(detail::frame::abort_with(why));
  }
  void leave() noexcept {
    if (std::exchange(left_, true)) return;
    const deadline began = clock::now();
    if (failure().ok()) {
      domain_.prepare_to_leave(began, [this] { return nothing_queued(); });
      for (int p = 0; p < size(); ++p)
        if (channel(p)) channel(p)->say({detail::frame::kind::bye, 0, 0});
    }
    domain_.close(began);
  }
  void note_issue(std::uint64_t sequence) noexcept { domain_.note_issue(sequence); }
  void note_end(std::uint64_t calls, std::uint64_t hash) noexcept { domain_.note_end(calls, hash); }

  [[nodiscard]] int waiting_for(const routine::promise_type* work, std::uint64_t = 0) const noexcept {
    return domain_.straggler([&](int p) { return channel(p)->holds(work); });
  }
  [[nodiscard]] std::string describe(int p) const {
    if (p < 0 || p >= size()) return "an unknown rank";  // it may come from a peer
    return domain_.describe(p, channel(p) ? channel(p)->last_sequence() : 0);
  }
  [[nodiscard]] double ranks_per_core() const noexcept { return ranks_per_core_; }

  void prepare_park() noexcept { domain_.prepare_park(); }
  void park(duration at_most) noexcept { domain_.park(at_most); }
  void finish_park() noexcept {}
  void unpark() noexcept { domain_.unpark(); }

 private:
  bool nothing_queued() noexcept {
    bool moved = false, none = true;
    for (int p = 0; p < size(); ++p) {
      auto* c = channel(p);
      if (!c || !c->wants_to_write() || !c->progress(moved).ok()) continue;
      none = none && !c->wants_to_write();
    }
    return none;
  }

  tcp_domain domain_;
  double ranks_per_core_;
  bool left_ = false;
};

}  // namespace tutti
