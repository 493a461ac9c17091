#pragma once
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/core/status.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/process.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/tcp/straggler.hpp>
#include <tutti/transport/tcp/stream.hpp>
#include <tutti/wire/handshake.hpp>

namespace tutti::detail {

/// State of a rank's connections with one peer.
struct tcp_link {
  tcp_stream* stream = nullptr;  ///< null for a peer that is not reached over TCP
  os::endpoint address;
  bool bye = false;  ///< the peer leaves in order
  status called{};   ///< its goodbye: the number and the hash of its calls
  bool awaited = false;
  deadline suspected = (deadline::max)();  ///< time from which on something is broken
  deadline since{};                        ///< time from which on it is awaited and no byte of a message came
  deadline heard{};
  deadline next_look{};  ///< when to check whether its process is alive
  std::uint64_t received = 0, issued = 0;
  int error = 0, broken = 0;  ///< the first error, and its rail
  wire::refusal refused = wire::refusal::none;
  wire::handshake_counterpart theirs{};

  /// Records that a connection is broken; the first error stays.
  void suspect(int why, int rail) noexcept {
    if (error == 0) {
      error = why;
      broken = rail;
    }
    if (suspected == (deadline::max)()) suspected = clock::now();
  }
  /// Returns true if something has been broken for this time, so that no other cause will come to light.
  [[nodiscard]] bool suspected_for(duration d, deadline now) const noexcept {
    return suspected <= now && now - suspected >= d && !bye && stream->failure().ok();
  }
  /// Returns the failure: `them` are lost, or `self`, this rank, has run out of descriptors or memory.
  [[nodiscard]] status lost(const rank_info& them, const rank_info& self) const noexcept {
    const bool ours = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
    if (ours) return {errc::out_of_resources, 0, self.rank, static_cast<std::uint64_t>(error)};
    const bool here = near(them, self);
    // A rank that leaves or fails says so first: if a connection ends without that, the kernel has ended it.
    const bool died = here ? ends_soon(them) : error == 0;
    return status::lost(them.rank,
                        died   ? tutti::loss::died
                        : here ? tutti::loss::cut
                               : tutti::loss::broken,
                        self.rank, error);
  }
  /// Returns true if the peer has said goodbye and nothing of its stream can come any more.
  [[nodiscard]] bool gone_in_order() const noexcept { return stream && bye && stream->stream_ended(); }

  /// Updates the times of the last arrivals; `awaited` may change afterwards.
  void note(deadline now) noexcept {
    const bool moved = std::exchange(received, stream->received()) != received;
    if (moved) heard = now;
    if (moved || !awaited) since = now;
  }
  /// Returns true if the peer has been awaited for a moment, and nothing came.
  [[nodiscard]] bool stalled(deadline now) const noexcept {
    return awaited && now - since >= straggler_detector::moment;
  }
  /// Returns true if `them` have died on this machine, though a child of theirs may still hold the connection. It
  /// checks now and then, and only a peer that keeps this rank waiting.
  [[nodiscard]] bool died(const rank_info& them, const rank_info& self, deadline now) noexcept {
    if (!stalled(now) || now < next_look || !near(them, self)) return false;
    next_look = now + straggler_detector::moment;
    return !os::is_alive(them.pid, them.start_time);
  }

  /// Returns ", last seen at #39 31 s ago", and what is wrong with the connections if that may have led to `cause`, for
  /// which this rank failed. That nothing ever came is said only if this rank has timed out.
  [[nodiscard]] std::string describe(const wire::handshake_terms& terms, std::uint64_t sequence, errc cause) const {
    const std::string to = " to " + address.to_string() + ": ";
    if (refused != wire::refusal::none) return ", no connection" + to + wire::explain(refused, terms, theirs);
    std::string why;
    if (error != 0 && cause != errc::mismatch && cause != errc::aborted) {
      why = ", connection" + number() + to +
            (error == secure_channel::forgery ? "bytes were changed on their way, or are not of that rank"
                                              : std::generic_category().message(error));
      if (error == ECONNREFUSED && !bye) why += " (it has died, or left while this rank was busy)";
    }
    const deadline now = clock::now(), last = stream->received() != received ? now : heard;
    if (last == deadline{})
      return why + (cause == errc::timed_out && error == 0 ? ", not heard from yet" : "") + count();
    const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(now - last).count();
    const std::uint64_t number = (std::max)(sequence, issued);
    return why + ", last seen " + (number != 0 ? "at #" + std::to_string(number) + " " : "") +
           (ago < 1000 ? std::to_string(ago) + " ms ago" : std::to_string(ago / 1000) + " s ago") + count();
  }

 private:
  static bool near(const rank_info& them, const rank_info& self) noexcept {
    return !self.memory_domain.empty() && them.memory_domain == self.memory_domain;
  }
  /// Waits 100 ms at most until a process is dead, and returns true if it is. A process that is killed closes its
  /// sockets a little before it counts as dead.
  static bool ends_soon(const rank_info& p) noexcept {
    for (const deadline sure = after(std::chrono::milliseconds{100}); os::is_alive(p.pid, p.start_time);) {
      if (clock::now() >= sure) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }
  [[nodiscard]] std::string number() const {
    if (stream->rails() == 1) return "";
    return " " + std::to_string(broken + 1) + " of " + std::to_string(stream->rails());
  }
  /// Returns ", 3 of 4 connections stand"; nothing with one rail.
  [[nodiscard]] std::string count() const {
    if (stream->rails() == 1) return "";
    return ", " + std::to_string(stream->standing()) + " of " + std::to_string(2 * stream->rails()) +
           " connections stand";
  }
};

}  // namespace tutti::detail
