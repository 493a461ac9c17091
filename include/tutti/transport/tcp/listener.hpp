#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include <tutti/core/error.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/transport/tcp/options.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti {

/// Socket at which the peers of a rank connect to it; made before the roll call, and given to the transport afterwards.
class tcp_listener {
 public:
  /// Listens on `address` (an address, the name of a network interface, or a host name of this machine) and a port that
  /// the kernel picks unless one is given. Beyond loopback, `asked` must be `secret`, for the job's secret, or
  /// `insecure`. It never listens on all interfaces at once. Throws usage_error if it refuses, error if the system
  /// fails.
  explicit tcp_listener(const std::string& address = "127.0.0.1", wire::protection asked = wire::protection::none,
                        std::uint16_t port = 0)
      : asked_(asked) {
    const os::endpoint where = os::resolve(address, port).front();
    if (where.is_unix() || where.is_wildcard()) {
      throw usage_error("cannot listen on " + address +
                        ": name an address or a network interface (\"eth0\") at which the other ranks reach this one");
    }
    const auto who = where.is_loopback() ? wire::reach::this_machine : wire::reach::network;
    if (const std::string why = wire::why_not_listen(where.to_string(), who, asked); !why.empty())
      throw usage_error(why);
    socket_ = os::listen_on(where);
    endpoint_ = os::local_endpoint(socket_.native()).to_string();
  }

  /// Returns "10.0.0.7:41233", for the roster.
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  [[nodiscard]] wire::protection protection() const noexcept { return asked_; }
  [[nodiscard]] int native() const noexcept { return socket_.native(); }
  /// Makes children of fork() close their copies, see os::fd. A rank that goes on to listen must call it, because the
  /// port must not stay open after its death.
  void end_in_children() const noexcept { socket_.end_in_children(); }
  void close() noexcept { socket_.reset(); }

 private:
  wire::protection asked_;
  os::fd socket_;
  std::string endpoint_;
};

namespace detail {

/// Throws usage_error if the job of this rank lacks a secret that its listener asks for or that encryption takes,
/// error{unsupported} if nothing computes HMACs or encrypts.
inline void check_secret(const tcp_job& job, const tcp_listener& listener, int rank) {
  const std::string who = "rank " + std::to_string(rank);
  if (!job.secret && listener.protection() == wire::protection::secret)
    throw usage_error(who + " listens on " + listener.endpoint() +
                      " for peers that prove the job's secret, but was given none");
  if (!job.secret && job.encrypted) throw usage_error(who + " is to encrypt its connections, but was given no secret");
  if (job.secret) wire::require_hmac_provider();
  if (job.encrypted) require_secure_channels();
}

}  // namespace detail

}  // namespace tutti
