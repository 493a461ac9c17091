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
#include <tutti/bootstrap/launch/secret_remedy.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/store/tcp_store.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti::detail {

/// Identity and limits with which this process opens the rendezvous store.
struct participant {
  int rank = 0;
  int world_size = 1;
  int local_size = -1;  ///< ranks on its machine; -1: unknown
  wire::job_id job{};
  std::optional<wire::secret> secret{};
  exposure network = exposure::guarded;
  deadline until{};
  std::stop_token stop{};
  launcher by = launcher::by_hand;  ///< for messages
};

/// Opener of the store at a rendezvous over sockets. Rank 0 is the host, and serves the others only inside its calls.
class store_opener {
 public:
  store_opener(rendezvous_url url, participant who)
      : url_(std::move(url)), who_(std::move(who)), text_(to_string(url_)) {}

  /// Returns a possible reason why ranks of other machines have not come; empty if there is none.
  [[nodiscard]] const std::string& caveat() const noexcept { return caveat_; }

  /// Opens the store: listens as rank 0, else connects, until the deadline. Throws usage_error or error{rendezvous} if
  /// the ranks cannot meet there, {auth_failed} without a secret that the network requires, {aborted} when told to
  /// stop.
  [[nodiscard]] tcp_store open() {
    const bool local = url_.kind != rendezvous_url::scheme::tcp;
    std::vector<os::endpoint> places;
    // Names appear late where machines are started on demand, but rank 0 looks its own up now, on this machine.
    const bool beside_host = who_.rank == 0 || who_.local_size == who_.world_size;
    if (local || beside_host) places = os::resolve(host(), url_.port);
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
    o.world = (std::max)(who_.world_size, who_.rank + 1);  // admits an extra rank, so that it can tell the others
    o.job = who_.job;
    o.secret = who_.secret;
    o.network = who_.network;
    o.timeout = longest_answer;
    o.until = who_.until;
    return o;
  }

  /// Throws error{auth_failed} if rank 0 would listen to a network without a secret. All ranks check this: the others
  /// would wait for rank 0 in vain.
  void refuse_open_network(std::vector<os::endpoint> places) const {
    if (who_.secret || who_.network == exposure::insecure) return;
    try {
      if (places.empty()) places = os::resolve(url_.host, url_.port);
    } catch (const error&) {
      return;  // the names of machines that are started on demand resolve late
    }
    // Beside other machines, a rank 0 whose name means loopback here listens at all addresses.
    const bool beside_others = who_.local_size > 0 && who_.local_size < who_.world_size && !loopback(url_.host);
    const bool here = places.front().is_loopback();
    const bool guarded = here && (who_.rank == 0 || !beside_others);  // rank 0: listen_beyond_loopback()
    const std::string why = wire::why_not_listen(here ? address() : places.front().to_string(),
                                                 guarded ? wire::reach::this_machine : wire::reach::network,
                                                 wire::protection::none, secret_remedy(who_.by));
    if (!why.empty()) throw error{{errc::auth_failed}, text_ + ": " + why, {who_.rank}};
  }

  /// Makes rank 0 listen at all addresses, if it is allowed to, when the name of the rendezvous resolves to loopback
  /// but ranks may be on other machines: many machines resolve their own name to 127.0.1.1 (/etc/hosts), while others
  /// resolve it to another address.
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
                      wire::why_not_listen(everywhere.to_string(), wire::reach::network, wire::protection::none,
                                           secret_remedy(who_.by)),
                  {who_.rank}};
    if (!allowed) return;
    caveat_.clear();
    places = {everywhere};
  }

  [[nodiscard]] tcp_store listen(const os::endpoint& where) const {
    auto o = options();
    // The store admits any job and world size: the roll call then explains the difference to both sides.
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

  /// Returns advice for a local rendezvous without a listener: the ranks are in network namespaces of their own, or
  /// they have met already, and one of them has started this program.
  [[nodiscard]] std::string inherited() const {
    return url_.kind != rendezvous_url::scheme::unix_abstract
               ? ""
               : " Containers with networks of their own do not have that socket in common: give them the host's "
                 "network, or set MASTER_ADDR and MASTER_PORT. A program that a rank starts inherits the rank's place, "
                 "which is taken: give it a launcher of its own, or start it with env -u RANK -u WORLD_SIZE "
                 "-u TUTTI_RENDEZVOUS -u TUTTI_JOB";
  }

  /// Removes the socket file of a host that was killed, if it is this user's and no process listens there. Returns true
  /// if listening may be tried again.
  [[nodiscard]] bool remove_stale_socket(const os::endpoint& where) const {
    if (url_.kind != rendezvous_url::scheme::unix_path) return false;
    struct stat before{}, now{};
    if (::lstat(url_.path.c_str(), &before) != 0) return errno == ENOENT;
    if (!S_ISSOCK(before.st_mode) || before.st_uid != ::geteuid()) return false;
    if (os::start_connect(where).error != ECONNREFUSED) return false;
    if (::lstat(url_.path.c_str(), &now) != 0 || now.st_ino != before.st_ino) return true;
    return ::unlink(url_.path.c_str()) == 0;
  }

  /// Connects to the process that holds the address: a second rank 0 of this job, as the roll call will say, or another
  /// program, whose answer the error quotes.
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
