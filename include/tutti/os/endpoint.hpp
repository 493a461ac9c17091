#pragma once
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// The address of a stream socket: IPv4 or IPv6 with a port, or a Unix socket by path or abstract name.
class endpoint {
 public:
  endpoint() noexcept = default;
  endpoint(const sockaddr* address, socklen_t bytes) noexcept
      : bytes_(bytes <= sizeof storage_ ? bytes : static_cast<socklen_t>(sizeof storage_)) {
    std::memcpy(&storage_, address, bytes_);
  }

  /// Returns the endpoint of a Unix socket. A name that begins with '@' is abstract: it has no file and vanishes with
  /// the last socket. Throws usage_error if the name is empty, contains a zero byte, or is longer than the kernel takes
  /// (107 bytes).
  static endpoint unix_socket(std::string_view name) {
    sockaddr_un a{};
    if (name.empty() || name.size() >= sizeof a.sun_path || name.find('\0') != std::string_view::npos) {
      throw usage_error{"a Unix socket's name must have 1 to 107 bytes, none of them zero, but \"" + std::string{name} +
                        "\" has " + std::to_string(name.size()) +
                        ": use a shorter directory or an abstract name (@name)"};
    }
    a.sun_family = AF_UNIX;
    name.copy(a.sun_path, name.size());
    const bool abstract_name = name.front() == '@';
    if (abstract_name) a.sun_path[0] = '\0';
    const std::size_t bytes = offsetof(sockaddr_un, sun_path) + name.size() + (abstract_name ? 0 : 1);
    return {reinterpret_cast<const sockaddr*>(&a), static_cast<socklen_t>(bytes)};
  }

  [[nodiscard]] const sockaddr* native() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t native_bytes() const noexcept { return bytes_; }
  [[nodiscard]] int family() const noexcept { return bytes_ == 0 ? AF_UNSPEC : storage_.ss_family; }
  [[nodiscard]] bool is_unix() const noexcept { return family() == AF_UNIX; }

  /// Returns the port; 0 for a Unix socket.
  [[nodiscard]] std::uint16_t port() const noexcept {
    if (family() == AF_INET) return ntohs(as<sockaddr_in>().sin_port);
    return family() == AF_INET6 ? ntohs(as<sockaddr_in6>().sin6_port) : std::uint16_t{0};
  }

  [[nodiscard]] endpoint with_port(std::uint16_t port) const noexcept {
    endpoint e = *this;
    // sin_port and sin6_port lie at the same offset.
    if (!is_unix()) reinterpret_cast<sockaddr_in*>(&e.storage_)->sin_port = htons(port);
    return e;
  }

  /// Returns a number for the host: the whole address for IPv4, the 64-bit network for IPv6, in which a host chooses
  /// its own addresses; 0 for a Unix socket.
  [[nodiscard]] std::uint64_t host_number() const noexcept {
    if (family() == AF_INET) return std::uint64_t{as<sockaddr_in>().sin_addr.s_addr} | std::uint64_t{1} << 32;
    if (family() != AF_INET6) return 0;
    const auto a = as<sockaddr_in6>().sin6_addr;
    std::uint64_t number = 0;
    // Loopback and mapped IPv4 addresses differ in the last half only.
    const bool last = IN6_IS_ADDR_LOOPBACK(&a) || IN6_IS_ADDR_V4MAPPED(&a);
    std::memcpy(&number, a.s6_addr + (last ? 8 : 0), sizeof number);
    return number;
  }

  /// Returns true if it cannot be reached from outside of this machine (strictly: of this network namespace).
  [[nodiscard]] bool is_loopback() const noexcept {
    if (family() == AF_INET) return (ntohl(as<sockaddr_in>().sin_addr.s_addr) >> 24) == 127;
    if (family() != AF_INET6) return is_unix();
    const auto a = as<sockaddr_in6>().sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
  }

  /// Returns true if listening on it means listening on every interface.
  [[nodiscard]] bool is_wildcard() const noexcept {
    if (family() == AF_INET) return as<sockaddr_in>().sin_addr.s_addr == htonl(INADDR_ANY);
    if (family() != AF_INET6) return false;
    const auto a = as<sockaddr_in6>().sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(&a);
  }

  /// Returns the number of the interface of a link-local IPv6 address on this machine; 0 for none.
  [[nodiscard]] std::uint32_t scope() const noexcept {
    return family() == AF_INET6 ? as<sockaddr_in6>().sin6_scope_id : 0;
  }

  /// Returns "127.0.0.1:4711", "[::1]:4711", "[fe80::1%eth0]:4711", "unix:/path" or "unix:@name".
  [[nodiscard]] std::string to_string() const {
    char text[INET6_ADDRSTRLEN] = {};
    if (family() == AF_INET) {
      const auto a = as<sockaddr_in>();
      return std::string{::inet_ntop(AF_INET, &a.sin_addr, text, sizeof text)} + ":" + std::to_string(int{port()});
    }
    if (family() == AF_INET6) {
      const auto a = as<sockaddr_in6>();
      std::string all = "[";  // appended, as g++ 12 warns of what operator+ does to it
      all += ::inet_ntop(AF_INET6, &a.sin6_addr, text, sizeof text);
      all += scope_text();
      all += "]:";
      return all += std::to_string(int{port()});
    }
    const std::size_t head = offsetof(sockaddr_un, sun_path);
    if (!is_unix() || bytes_ <= head) return is_unix() ? "unix:(unnamed)" : "(none)";
    const char* path = reinterpret_cast<const char*>(&storage_) + head;
    const std::size_t size = bytes_ - head;
    return path[0] == '\0' ? "unix:@" + std::string{path + 1, size - 1}
                           : "unix:" + std::string{path, ::strnlen(path, size)};
  }

  friend bool operator==(const endpoint& a, const endpoint& b) noexcept {
    if (a.family() != b.family()) return false;
    if (a.family() == AF_INET) {
      return a.port() == b.port() && a.as<sockaddr_in>().sin_addr.s_addr == b.as<sockaddr_in>().sin_addr.s_addr;
    }
    if (a.family() == AF_INET6) {
      const auto x = a.as<sockaddr_in6>(), y = b.as<sockaddr_in6>();
      return a.port() == b.port() && x.sin6_scope_id == y.sin6_scope_id &&
             std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
    }
    return a.bytes_ == b.bytes_ && std::memcmp(&a.storage_, &b.storage_, a.bytes_) == 0;
  }

 private:
  [[nodiscard]] std::string scope_text() const {
    if (scope() == 0) return "";
    char name[IF_NAMESIZE] = {};
    std::string text = "%";
    return text += ::if_indextoname(scope(), name) != nullptr ? std::string{name} : std::to_string(scope());
  }

  template <class Address>
  [[nodiscard]] Address as() const noexcept {
    Address a;
    std::memcpy(&a, &storage_, sizeof a);
    return a;
  }

  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

}  // namespace tutti::os
