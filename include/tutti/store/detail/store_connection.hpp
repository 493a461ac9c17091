#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/os/fd.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/wire/server_handshake.hpp>
#include <tutti/wire/store_frame.hpp>

namespace tutti::detail {

/// A connection at the host of a store. It first performs a handshake, for which it allocates nothing; once admitted,
/// it carries a client's requests and their responses.
class store_connection {
 public:
  enum class progress : std::uint8_t { going_on, ended };

  store_connection(os::fd socket, const wire::handshake_terms& terms) noexcept
      : socket_(std::move(socket)), handshake_(terms) {}

  [[nodiscard]] int native() const noexcept { return socket_.native(); }
  [[nodiscard]] bool admitted() const noexcept { return admitted_; }
  [[nodiscard]] const wire::server_handshake& handshake() const noexcept { return handshake_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return handshake_.claim().rank; }

  /// Returns true if 1 MiB of responses or more are not sent yet; no request is handled then.
  [[nodiscard]] bool is_full() const noexcept { return out_.size() - sent_ >= output_limit; }
  [[nodiscard]] std::size_t unhandled_bytes() const noexcept { return in_.size(); }

  /// Returns the events to poll for. A connection that is_full() is not read, so a client that does not take its
  /// responses cannot use up memory.
  [[nodiscard]] os::interest wanted() const noexcept {
    const bool read = !is_full();
    const bool write = sent_ < out_.size() || !handshake_.output().empty();
    if (read && write) return os::interest::read_write;
    return write ? os::interest::write : os::interest::read;
  }
  os::interest armed = os::interest::none;

  /// Reads up to 64 KiB of the bytes that have arrived; call handle_requests() next. During the handshake, reads only
  /// what the handshake expects.
  progress receive() {
    if (!admitted_) return greet();
    const std::size_t before = in_.size();
    in_.resize(before + chunk_bytes);
    const auto r = os::receive_some(native(), std::span{in_}.subspan(before));
    in_.resize(before + r.bytes);
    return r.closed ? progress::ended : progress::going_on;
  }

  /// Calls `serve(request, key, expected, value)` for each complete request, until the connection is_full(). The
  /// arguments are valid during the call. Returns `ended` if the input is no request, or if `serve` returned it.
  template <class Serve>
  progress handle_requests(Serve&& serve) {
    std::size_t used = 0;
    progress state = progress::going_on;
    while (state == progress::going_on && !is_full()) {
      const auto rest = std::span<const std::byte>{in_}.subspan(used);
      if (rest.size() < wire::store_request::head_bytes) break;
      const auto q = wire::decode_request(rest.first<wire::store_request::head_bytes>());
      if (!q) return progress::ended;
      if (rest.size() - wire::store_request::head_bytes < q->body_bytes()) break;
      wire::byte_reader body{rest.subspan(wire::store_request::head_bytes)};
      const auto key = body.bytes(q->key_bytes);
      const auto expected = body.bytes(q->expected_bytes);
      const auto value = body.bytes(q->value_bytes);
      used += wire::store_request::head_bytes + q->body_bytes();
      state = serve(*q, std::string_view{reinterpret_cast<const char*>(key.data()), key.size()}, expected, value);
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(used));
    return state;
  }

  /// Appends a response to the output; flush() sends it.
  void respond(const wire::store_response& p, std::span<const std::byte> value) {
    std::array<std::byte, wire::store_response::head_bytes> head;
    wire::encode(p, head);
    out_.insert(out_.end(), head.data(), head.data() + head.size());
    out_.insert(out_.end(), value.data(), value.data() + value.size());
  }

  /// Sends as much of the output as the socket accepts without waiting.
  progress flush() {
    while (!handshake_.output().empty()) {
      const auto r = os::send_some(native(), handshake_.output());
      if (r.closed) return progress::ended;
      if (r.would_block()) return progress::going_on;
      handshake_.sent(r.bytes);
    }
    while (sent_ < out_.size()) {
      const auto r = os::send_some(native(), std::span<const std::byte>{out_}.subspan(sent_));
      if (r.closed) return progress::ended;
      if (r.would_block()) break;
      sent_ += r.bytes;
    }
    if (sent_ == out_.size()) {
      out_.clear();
      sent_ = 0;
      if (out_.capacity() > output_limit) out_.shrink_to_fit();
    }
    return progress::going_on;
  }

  /// A get() of the client for a key that does not exist yet.
  struct wait {
    std::uint64_t request = 0;
    std::string key;
  };
  std::vector<wait> waits;

  void forget(std::uint64_t request) {
    for (std::size_t i = waits.size(); i-- > 0;)
      if (waits[i].request == request) waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
  }

 private:
  static constexpr std::size_t output_limit = 1 << 20;
  static constexpr std::size_t chunk_bytes = 1 << 16;

  progress greet() noexcept {
    std::array<std::byte, 256> strange;
    while (handshake_.state() == wire::handshake_state::running) {
      const auto r = os::receive_some(native(), std::span{strange}.first(handshake_.wanted()));
      if (r.closed) return progress::ended;
      if (r.would_block()) return progress::going_on;
      handshake_.receive(std::span{strange}.first(r.bytes));
    }
    admitted_ = handshake_.state() == wire::handshake_state::accepted;
    if (!admitted_) static_cast<void>(flush());  // not tried again: the reply fits into an empty send buffer
    return admitted_ ? progress::going_on : progress::ended;
  }

  os::fd socket_;
  wire::server_handshake handshake_;
  bool admitted_ = false;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
};

}  // namespace tutti::detail
