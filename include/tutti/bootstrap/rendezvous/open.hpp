#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/bootstrap/launch/rendezvous.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/store/tcp_store.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti::detail {

/// Whom this process is at the place where the ranks meet.
struct participant {
  int rank = 0;
  int world_size = 1;
  int local_size = -1;  ///< ranks on its machine; -1 where nobody says
  wire::job_id job{};
  std::optional<wire::secret> secret{};
  exposure network = exposure::guarded;
  deadline until{};
  std::stop_token stop{};
};

/// Opens the store at a rendezvous over sockets. Rank 0 is the host, and serves the others only inside its calls.
class meeting_opener {
 public:
  meeting_opener(rendezvous_url url, participant who)
      : url_(std::move(url)), who_(std::move(who)), text_(to_string(url_)) {}

  /// Returns a possible reason why ranks of other machines have not come; empty if there is none.
  [[nodiscard]] const std::string& caveat() const noexcept { return caveat_; }

  [[nodiscard]] tcp_store open() {
    const bool local = url_.kind != rendezvous_url::scheme::tcp;
    std::vector<os::endpoint> places;
    if (local || who_.rank == 0) places = os::resolve(host(), url_.port);
    if (!local) refuse_open_network(places);
    if (who_.rank != 0) return connect(who_.until);
    if (!local) listen_beyond_loopback(places);
    for (std::size_t i = 0;; ++i) {
      try {
        return listen(places[i]);
      } catch (const error& e) {
        const auto cause = static_cast<int>(e.cause().detail);
        if (e.kind() != errc::system || (cause != EADDRINUSE && cause != EADDRNOTAVAIL)) throw;
        if (cause == EADDRNOTAVAIL && i + 1 < places.size()) continue;
        if (cause == EADDRNOTAVAIL)
          throw error{
              {errc::rendezvous, 0, -1, e.cause().detail},
              std::string(e.what()) + "; rank 0 listens at " + text_ + ", so that must be an address of its machine",
              {who_.rank}};
        if (remove_stale_socket(places[i])) {
          --i;
          continue;
        }
        return meet_holder(e);
      }
    }
  }

 private:
  [[nodiscard]] std::string host() const {
    switch (url_.kind) {
      case rendezvous_url::scheme::unix_abstract:
        return "unix:@" + url_.path;
      case rendezvous_url::scheme::unix_path:
        return "unix:" + url_.path;
      case rendezvous_url::scheme::tcp:
      case rendezvous_url::scheme::file:
      case rendezvous_url::scheme::env:
        break;
    }
    return url_.host;
  }
  [[nodiscard]] std::string address() const {
    if (url_.kind != rendezvous_url::scheme::tcp) return host();
    const bool v6 = url_.host.find(':') != std::string::npos;
    return (v6 ? "[" + url_.host + "]" : url_.host) + ":" + std::to_string(int{url_.port});
  }
  [[nodiscard]] tcp_store_options options() const {
    tcp_store_options o;
    o.rank = who_.rank;
    o.world =
        (std::max)(who_.world_size, who_.rank + 1);  // one rank too many is let in, so that it can tell the others
    o.job = who_.job;
    o.secret = who_.secret;
    o.network = who_.network;
    o.timeout = longest_answer;
    o.until = who_.until;
    return o;
  }

  /// Rank 0 must not listen to a network without a secret; the others would wait for it in vain, so they say so, too.
  void refuse_open_network(std::vector<os::endpoint> places) const {
    if (who_.secret || who_.network == exposure::insecure) return;
    try {
      if (places.empty()) places = os::resolve(url_.host, url_.port);
    } catch (const error&) {
      return;  // names appear late where machines are started on demand
    }
    const std::string why = wire::why_not_listen(
        places.front().to_string(), places.front().is_loopback() ? wire::reach::this_machine : wire::reach::network,
        wire::protection::none);
    if (!why.empty()) throw error{{errc::auth_failed}, text_ + ": " + why, {who_.rank}};
  }

  /// Many machines take their own name for a loopback address (127.0.1.1 in /etc/hosts), while others know it by
  /// another one. Where there may be ranks on others, rank 0 listens at all addresses then, if it is allowed to.
  void listen_beyond_loopback(std::vector<os::endpoint>& places) {
    for (const os::endpoint& where : places)
      if (where.is_wildcard())
        throw usage_error("rendezvous " + text_ + ": name an address of rank 0's machine, not all of them");
    const auto here = [](const os::endpoint& where) { return where.is_loopback(); };
    if (loopback(url_.host) || !std::ranges::all_of(places, here) || who_.local_size == who_.world_size) return;
    const os::endpoint everywhere = os::resolve(places.front().family() == AF_INET ? "0.0.0.0" : "::", url_.port)[0];
    caveat_ = "This machine takes " + url_.host + " for " + places.front().to_string() +
              " (see /etc/hosts), where ranks of other machines cannot come.";
    const bool allowed = who_.secret || who_.network == exposure::insecure;
    if (!allowed && who_.local_size > 0)
      throw error{{errc::auth_failed},
                  text_ + ": " + caveat_ + " To listen at all addresses: " +
                      wire::why_not_listen(everywhere.to_string(), wire::reach::network, wire::protection::none),
                  {who_.rank}};
    if (!allowed) return;
    caveat_.clear();
    places = {everywhere};
  }

  [[nodiscard]] tcp_store listen(const os::endpoint& where) const {
    auto o = options();
    // The roll call says what is wrong with another job or world size, to both sides.
    o.world = 0;
    o.any_job = true;
    o.expected = who_.world_size;
    return tcp_store::host(where, std::move(o));
  }

  [[nodiscard]] tcp_store connect(deadline until) const {
    for (;;) {
      const deadline slice =
          who_.stop.stop_possible() ? (std::min)(until, after(std::chrono::milliseconds{500})) : until;
      try {
        return tcp_store::connect(address(), options(), slice);
      } catch (const error& e) {
        if (who_.stop.stop_requested())
          throw error{{errc::aborted}, "told to stop while looking for the other ranks at " + text_, {who_.rank}};
        if (e.kind() != errc::timed_out) throw;
        if (slice == until || clock::now() >= until)
          throw error{{errc::rendezvous, 0, 0, e.cause().detail}, e.what() + inherited(), {who_.rank}};
      }
    }
  }

  /// Nobody listens where a launcher on this machine lets ranks meet, once they have met.
  [[nodiscard]] std::string inherited() const {
    return url_.kind != rendezvous_url::scheme::unix_abstract
               ? ""
               : " A program that a rank starts inherits the rank's place, which is taken: give it a launcher of its "
                 "own, "
                 "or start it with env -u RANK -u WORLD_SIZE -u TUTTI_RENDEZVOUS -u TUTTI_JOB";
  }

  /// A socket's file outlives a host that was killed; nobody listens there, and it is this user's.
  [[nodiscard]] bool remove_stale_socket(const os::endpoint& where) const {
    if (url_.kind != rendezvous_url::scheme::unix_path) return false;
    struct stat before{}, now{};
    if (::lstat(url_.path.c_str(), &before) != 0) return errno == ENOENT;
    if (!S_ISSOCK(before.st_mode) || before.st_uid != ::geteuid()) return false;
    if (os::start_connect(where).error != ECONNREFUSED) return false;
    if (::lstat(url_.path.c_str(), &now) != 0 || now.st_ino != before.st_ino) return true;
    return ::unlink(url_.path.c_str()) == 0;
  }

  /// The address is taken: by a second rank 0 of this job, as the roll call will say; or by something else.
  [[nodiscard]] tcp_store meet_holder(const error& taken) const {
    try {
      return connect((std::min)(who_.until, after(std::chrono::seconds{2})));
    } catch (const error& e) {
      throw error{{errc::rendezvous, 0, -1, taken.cause().detail},
                  std::string(taken.what()) + "; asked as a rank would, it answered: " + e.what(),
                  {who_.rank}};
    }
  }

  static constexpr std::chrono::seconds longest_answer{10};

  rendezvous_url url_;
  participant who_;
  std::string text_;
  std::string caveat_;
};

}  // namespace tutti::detail
