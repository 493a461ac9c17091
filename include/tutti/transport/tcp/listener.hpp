#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include <tutti/core/error.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti {

/// Where a rank can be reached by its peers; made before roll call, given to the transport afterwards.
class tcp_listener {
 public:
  /// Listens on `address` (an address, the name of a network interface, or a host name of this machine) and a port that
  /// the kernel picks unless one is given. Beyond loopback only with the job's secret, or where `asked` spells out
  /// `insecure`. Never on every interface at once. Throws usage_error when refused, error when the system fails.
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

  /// "10.0.0.7:41233", for the roster.
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  [[nodiscard]] wire::protection protection() const noexcept { return asked_; }
  [[nodiscard]] int native() const noexcept { return socket_.native(); }
  /// See os::fd; for whoever goes on to listen, as its door must not stay open after its death.
  void end_in_children() const noexcept { socket_.end_in_children(); }
  void close() noexcept { socket_.reset(); }

 private:
  wire::protection asked_;
  os::fd socket_;
  std::string endpoint_;
};

}  // namespace tutti
