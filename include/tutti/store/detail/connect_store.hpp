#pragma once
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/os/peer_credentials.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/os/wait_ready.hpp>
#include <tutti/store/detail/store_terms.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/tcp_store_options.hpp>
#include <tutti/wire/client_handshake.hpp>

namespace tutti::detail {

/// A connection attempt to the host of a store, which may not be up yet.
class store_connector {
 public:
  store_connector(const std::string& address, const tcp_store_options& options, deadline until)
      : address_(address), options_(options), until_(until) {}

  /// Connects and shakes hands; tries again until it succeeds. Throws error{timed_out} after the deadline, with the
  /// last problem. Throws at once if the two sides do not fit, or if this process lacks descriptors or permission.
  [[nodiscard]] os::fd connect() {
    const auto since = clock::now();
    const auto [host, port] = os::split_host_port(address_);
    if (options_.secret && host.rfind("unix:", 0) != 0) wire::require_hmac_provider();
    // The first pause depends on the rank, so that ranks that start together do not all retry at the same moment.
    duration pause = std::chrono::milliseconds{5} + std::chrono::microseconds{options_.rank % 64 * 50};
    for (;;) {
      for (const auto& where : candidates(host, port)) {
        os::fd socket = reach(where);
        if (socket && greet(socket.native(), where)) return socket;
      }
      const duration left = remaining(until_);
      if (left == duration{0}) {
        throw error{{errc::timed_out, 0, 0, static_cast<std::uint64_t>(last_errno_)},
                    "cannot reach the store at " + address_ + " within " + in_seconds(clock::now() - since) + ": " +
                        last_problem_ +
                        "; is rank 0 running there, is that the address it listens on, does a firewall lie between?",
                    error_context{options_.rank}};
      }
      std::this_thread::sleep_for((std::min)(pause, left));
      pause = std::min<duration>(pause * 2, std::chrono::milliseconds{250});
    }
  }

 private:
  [[nodiscard]] std::vector<os::endpoint> candidates(const std::string& host, std::uint16_t port) {
    try {
      return os::resolve(host, port);
    } catch (const error& e) {
      if (e.kind() != errc::rendezvous) throw;
      last_problem_ = e.what();  // the name may be registered later, if machines are started on demand
      return {};
    }
  }

  void remember(int cause, const os::endpoint& where) {
    last_errno_ = cause;
    last_problem_ = where.to_string() + ": " + std::generic_category().message(cause);
  }

  /// Returns a connected socket, or none to try again. Waits at most 5 s for one address.
  [[nodiscard]] os::fd reach(const os::endpoint& where) {
    auto started = os::start_connect(where);
    int cause = started.error;
    const deadline patience = (std::min)(until_, after(patience_));
    while (started.socket && (cause = os::connect_result(started.socket.native())) == EINPROGRESS) {
      if (clock::now() >= patience) {
        cause = ETIMEDOUT;
        patience_ = std::min<duration>(2 * patience_, std::chrono::seconds{5});
        break;
      }
      os::wait_ready(started.socket.native(), os::interest::write, remaining(patience));
    }
    if (cause == 0) return std::move(started.socket);
    if (os::classify_errno(cause) == errc::out_of_resources || cause == EACCES || cause == EPERM) {
      os::throw_errno(cause, "cannot connect to the store at " + where.to_string());
    }
    remember(cause, where);
    return {};
  }

  /// Shakes hands. Returns true if both sides accept each other, false to try again: the host did not answer in time,
  /// or closed the connection before the handshake ended, as it does while it starts, ends or has too many connections.
  /// Throws if either side refuses the other.
  [[nodiscard]] bool greet(int socket, const os::endpoint& where) {
    if (where.is_unix() && !os::peer_is_same_user(socket)) {
      throw error{{errc::auth_failed, 0},
                  "the store at " + address_ + " is run by " + owner_of(socket),
                  error_context{options_.rank}};
    }
    if (!where.is_unix()) static_cast<void>(os::set_tcp_options(socket, store_tcp_options));
    const auto terms = handshake_terms_of(options_, where.is_unix()   ? wire::proof::kernel
                                                    : options_.secret ? wire::proof::hmac
                                                                      : wire::proof::job_id);
    wire::client_handshake handshake{terms};
    std::array<std::byte, 256> buffer;
    while (handshake.state() == wire::handshake_state::running) {
      if (!flush(socket, handshake)) return hung_up(where);
      const auto r = os::receive_some(socket, std::span{buffer}.first(handshake.wanted()));
      if (r.closed) return hung_up(where);
      handshake.receive(std::span{buffer}.first(r.bytes));
      if (!r.would_block()) continue;
      if (clock::now() >= until_) {
        last_problem_ = "it is connected, but nobody answers";
        return false;
      }
      os::wait_ready(socket, os::interest::read, remaining(until_));
    }
    static_cast<void>(flush(socket, handshake));
    if (handshake.state() == wire::handshake_state::accepted) return true;
    throw error{{wire::error_of(handshake.why()), 0, 0, 0},
                "the connection to the store at " + address_ +
                    " was refused: " + wire::explain(handshake.why(), terms, handshake.counterpart()),
                error_context{options_.rank}};
  }

  static std::string owner_of(int socket) {
    const auto who = os::peer_credentials(socket);
    if (!who) return "nobody that the kernel names";
    return "another user (" + std::to_string(who.uid) + ", this process is " + std::to_string(::geteuid()) +
           "; 65534 stands for one of another user namespace)";
  }

  /// Sends the pending output of the handshake; false after an error. Does not wait: the messages of a handshake fit
  /// into the send buffer of any socket.
  static bool flush(int socket, wire::client_handshake& handshake) noexcept {
    while (!handshake.output().empty()) {
      const auto r = os::send_some(socket, handshake.output());
      if (r.error != 0) return false;
      handshake.sent(r.bytes);
    }
    return true;
  }

  bool hung_up(const os::endpoint& where) {
    last_problem_ = where.to_string() + " hung up before the handshake was over";
    return false;
  }

  const std::string& address_;
  const tcp_store_options& options_;
  deadline until_;
  // Until a connection is there. A host with a full queue of connections drops a request for one, which the kernel
  // repeats after 1 s, 3 s and 7 s only; a new attempt is one at once. It grows, as the way to a host may take long.
  duration patience_ = std::chrono::milliseconds{250};
  int last_errno_ = 0;
  std::string last_problem_ = "no attempt was made";
};

/// Connects to the store at "host:port" or "unix:name"; see store_connector::connect().
inline os::fd connect_store(const std::string& address, const tcp_store_options& options, deadline until) {
  return store_connector{address, options, until}.connect();
}

}  // namespace tutti::detail
