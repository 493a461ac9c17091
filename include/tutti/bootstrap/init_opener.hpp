#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/bootstrap/variable_lookup.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/store/tcp_store.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti::detail {

/// Whether this process has used the socket in TUTTI_LISTEN_FD.
inline std::atomic<bool> listener_taken{false};

/// The socket that tutti-run listens at for rank 0 before any rank runs; once per process. No descriptor when there is
/// none, or when the number has come to mean something else.
os::fd inherited_listener(const variable_lookup auto& get, const os::endpoint& where) {
  const auto number = read_number(get, "TUTTI_LISTEN_FD", 0);
  int listening = 0;
  socklen_t bytes = sizeof listening;
  if (!number || ::getsockopt(*number, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 || listening == 0 ||
      !(os::local_endpoint(*number) == where) || listener_taken.exchange(true))
    return {};
  return os::fd{*number};
}

/// Whom this process is at the place where the ranks meet.
struct visitor {
  int rank = 0;
  int world_size = 1;
  std::uint64_t generation = 0;
  wire::job_id job{};
  std::optional<wire::secret> secret{};
  exposure network = exposure::guarded;
  deadline until{};
  std::stop_token stop{};
};

/// Opens the store at a rendezvous over sockets. Rank 0 is the host, and serves the others only inside its calls.
template <variable_lookup Get>
class meeting_opener {
 public:
  meeting_opener(const rendezvous_url& url, const visitor& who, const Get& get)
      : url_(url), who_(who), get_(get), text_(to_string(url)) {}

  [[nodiscard]] tcp_store open() {
    const bool local = url_.kind != rendezvous_url::scheme::tcp;
    std::vector<os::endpoint> places;
    if (local || who_.rank == 0) places = os::resolve(host(), url_.port);
    if (!local) refuse_open_network(places);
    if (who_.rank != 0) return connect(who_.until);
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
    return (v6 ? "[" + url_.host + "]" : url_.host) + ":" + std::to_string(url_.port);
  }
  [[nodiscard]] tcp_store_options options() const {
    tcp_store_options o;
    o.rank = who_.rank;
    o.world =
        (std::max)(who_.world_size, who_.rank + 1);  // one rank too many is let in, so that it can tell the others
    o.job = who_.job;
    o.generation = who_.generation;
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

  [[nodiscard]] tcp_store listen(const os::endpoint& where) const {
    if (where.is_wildcard())
      throw usage_error("rendezvous " + text_ + ": name an address of rank 0's machine, not all of them");
    auto o = options();
    // The roll call says what is wrong with another job or world size, to both sides.
    o.world = 0;
    o.any_job = true;
    o.expected = who_.world_size;
    if (os::fd inherited = inherited_listener(get_, where)) return tcp_store::host(std::move(inherited), std::move(o));
    return tcp_store::host(where, std::move(o));
  }

  /// The store of an earlier generation may just be closing: then there is another one soon.
  [[nodiscard]] tcp_store connect(deadline until) const {
    const bool patient = who_.generation != 0;
    for (;;) {
      const deadline slice =
          who_.stop.stop_possible() ? (std::min)(until, after(std::chrono::milliseconds{500})) : until;
      try {
        return tcp_store::connect(address(), options(), slice);
      } catch (const error& e) {
        if (who_.stop.stop_requested())
          throw error{{errc::aborted}, "told to stop while looking for the other ranks at " + text_, {who_.rank}};
        const bool again = (e.kind() == errc::timed_out && slice < until) || (e.kind() == errc::rendezvous && patient);
        if (again && clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::milliseconds{2});
          continue;
        }
        if (e.kind() != errc::timed_out) throw;
        throw error{{errc::rendezvous, 0, 0, e.cause().detail}, e.what(), {who_.rank}};
      }
    }
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

  const rendezvous_url& url_;
  const visitor& who_;
  const Get& get_;
  std::string text_;
};

}  // namespace tutti::detail
