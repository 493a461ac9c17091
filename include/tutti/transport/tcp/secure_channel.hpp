#pragma once
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <tutti/core/error.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/wire/hmac.hpp>
#include <tutti/wire/job_id.hpp>

namespace tutti {

/// One end of an encrypted connection over a connected socket, which outlives it. No call blocks. Bytes that are
/// written are encrypted and on their way, in part maybe kept here while the socket has no room.
class secure_channel {
 public:
  /// The sides of its handshake.
  enum class side : std::uint8_t { opener, acceptor };
  /// State of the handshake. `closed`: the peer has closed the connection; `forged`: the peer does not have the key, or
  /// bytes were changed on their way.
  enum class progress : std::uint8_t { waiting, open, closed, forged };
  /// Error of a read after bytes that the peer has not encrypted with the key of the connection.
  static constexpr int forgery = EBADMSG;

  virtual ~secure_channel() = default;
  /// Continues the handshake, as far as it goes with the bytes that have arrived.
  virtual progress continue_handshake() noexcept = 0;
  /// Encrypts and sends bytes while nothing is kept; the result counts bytes before encryption.
  virtual os::io_result write(std::span<const std::byte> plain, os::segment last) noexcept = 0;
  /// Reads what has arrived. The error is EAGAIN, also behind some bytes, if nothing more is there for now.
  virtual os::io_result read(std::span<const iovec> pieces) noexcept = 0;
  [[nodiscard]] virtual bool keeps_some() const noexcept = 0;
  /// Sends what is kept, as far as there is room.
  virtual os::io_result flush() noexcept = 0;
};

/// Makes a channel over a socket. `key` is known to both ends of this connection only, `identity` names it in the
/// handshake. Returns null if there is no memory.
using secure_channel_fn = std::unique_ptr<secure_channel> (*)(int socket, secure_channel::side end,
                                                              const wire::mac& key,
                                                              const wire::job_id& identity) noexcept;

/// The function that makes secure channels; null until a component registers one.
inline std::atomic<secure_channel_fn> secure_channel_provider{nullptr};

/// Throws error{unsupported} if no provider of secure channels is registered; called if connections are to be
/// encrypted.
inline void require_secure_channels() {
  if (secure_channel_provider.load() != nullptr) return;
  throw error{{errc::unsupported},
              "connections are to be encrypted, but nothing in this program does: link the CMake target tutti::openssl "
              "and include <tutti/bootstrap/tls.hpp> in one source file (by hand: link libssl and libcrypto)"};
}

namespace detail {

/// Connected socket, and the channel that encrypts what it carries; null if it is not encrypted.
struct tcp_socket {
  tcp_socket(os::fd s = {}, std::unique_ptr<secure_channel> c = {}) noexcept  // NOLINT: a socket is one without channel
      : socket(std::move(s)), channel(std::move(c)) {}

  explicit operator bool() const noexcept { return static_cast<bool>(socket); }
  [[nodiscard]] int native() const noexcept { return socket.native(); }
  void reset() noexcept {
    channel.reset();
    socket.reset();
  }

  os::fd socket;
  std::unique_ptr<secure_channel> channel;
};

/// Makes the channel of a socket whose handshake of tutti is complete. Its key is of this one connection: it covers
/// both random numbers, both ranks and the job, so that nothing of one connection is valid on another. Returns false if
/// there is no secret, provider or memory.
template <class Handshake>
bool make_channel(tcp_socket& s, secure_channel::side end, const Handshake& done, const wire::job_id& job) noexcept {
  const secure_channel_fn make = secure_channel_provider.load();
  wire::mac key{};
  if (make == nullptr || !done.channel_key(key)) return false;
  s.channel = make(s.native(), end, key, job);
  return s.channel != nullptr;
}

}  // namespace detail

}  // namespace tutti
