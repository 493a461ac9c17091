#pragma once
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/wire/client_handshake.hpp>

namespace tutti::detail {

/// Attempt to connect to a peer: connects, then proves this rank's identity and checks the peer's. No call blocks.
class tcp_connect_attempt {
 public:
  enum class state : std::uint8_t {
    connecting,
    greeting,  ///< connected; the peer may be busy for long before it answers
    ready,     ///< release() returns the connection, encrypted if the terms are an encrypted peer's
    refused,   ///< by the handshake: see handshake().why()
    hung_up,   ///< the peer closed during the handshake, as it does when this side is too slow
    forged,    ///< bytes were changed on their way
    failed     ///< no connection: see error()
  };

  tcp_connect_attempt(const os::endpoint& where, const wire::handshake_terms& terms, deadline until) noexcept
      : handshake_(terms),
        encrypted_(terms.role == wire::connection_role::encrypted_peer),
        job_(terms.job),
        until_(until) {
    os::socket_result r = os::start_connect(where);
    socket_.socket = std::move(r.socket);
    error_ = r.error;
    if (!socket_) state_ = state::failed;
  }

  /// Does all that is possible now, and returns the state.
  state progress() noexcept {
    if (state_ == state::connecting) {
      error_ = os::connect_result(socket_.native());
      if (error_ == EINPROGRESS) return state_;
      state_ = error_ == 0 ? state::greeting : state::failed;
      // The peer's machine may die before the peer answers. Whoever takes the connection sets its own options.
      if (error_ == 0) static_cast<void>(os::set_tcp_options(socket_.native(), {}));
    }
    while (state_ == state::greeting && converse()) {
    }
    return state_;
  }
  /// Gives up if there is no connection at the deadline.
  void expire(deadline now) noexcept {
    if (state_ != state::connecting || now < until_) return;
    error_ = ETIMEDOUT;
    state_ = state::failed;
  }

  [[nodiscard]] state where() const noexcept { return state_; }
  [[nodiscard]] int socket() const noexcept { return socket_.native(); }
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] const wire::client_handshake& handshake() const noexcept { return handshake_; }
  [[nodiscard]] tcp_socket release() noexcept { return std::move(socket_); }

 private:
  /// Does one step of the handshake; returns false if nothing can be done now.
  bool converse() noexcept {
    if (handshake_.state() == wire::handshake_state::accepted) {
      state_ = encrypted_ ? encrypt() : state::ready;
      return false;
    }
    if (!handshake_.output().empty()) {
      const os::io_result r = os::send_some(socket_.native(), handshake_.output());
      handshake_.sent(r.bytes);
      if (r.closed && handshake_.state() == wire::handshake_state::running) state_ = state::hung_up;
      if (r.bytes != 0) return true;
    }
    if (handshake_.state() == wire::handshake_state::refused) {
      state_ = state::refused;
      return false;
    }
    if (!handshake_.output().empty() || state_ != state::greeting) return false;
    std::array<std::byte, 128> some;
    const auto room = std::span{some}.first((std::min)(some.size(), handshake_.wanted()));
    const os::io_result r = os::receive_some(socket_.native(), room);
    if (r.closed) state_ = state::hung_up;
    handshake_.receive(room.first(r.bytes));
    return r.bytes != 0;
  }

  [[nodiscard]] state encrypt() noexcept {
    if (!socket_.channel && !make_channel(socket_, secure_channel::side::opener, handshake_, job_)) {
      error_ = ENOMEM;
      return state::failed;
    }
    switch (socket_.channel->continue_handshake()) {
      case secure_channel::progress::waiting:
        return state::greeting;
      case secure_channel::progress::open:
        return state::ready;
      case secure_channel::progress::closed:
        return state::hung_up;
      case secure_channel::progress::forged:
        break;
    }
    return state::forged;
  }

  tcp_socket socket_;
  wire::client_handshake handshake_;
  bool encrypted_;
  wire::job_id job_;
  deadline until_;
  int error_ = 0;
  state state_ = state::connecting;
};

}  // namespace tutti::detail
