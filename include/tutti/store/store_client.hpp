#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/wait_ready.hpp>
#include <tutti/store/detail/connect_store.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/tcp_store_options.hpp>
#include <tutti/store/text.hpp>
#include <tutti/wire/store_frame.hpp>

namespace tutti {

/// A client of a store_server. Models `store`. One thread at a time uses it; several clients in one process are
/// independent. Calls but get() take at most `options.timeout`, and end a second after `options.until`. After a lost
/// connection, or a request that was not sent or not answered in time, every later call throws the same error; a get()
/// that timed out leaves the client usable. Cost: one round trip for each call.
class store_client {
 public:
  /// Connects to "host:port", "[v6]:port" or "unix:name"; tries again until the host is up. Throws error{timed_out}
  /// after `until`, and at once error{auth_failed}, {protocol} or {rendezvous} with the difference if the two sides do
  /// not fit.
  store_client(std::string address, tcp_store_options options, deadline until)
      : address_(std::move(address)), options_(std::move(options)) {
    socket_ = detail::connect_store(address_, options_, until);
  }
  store_client(store_client&& other) noexcept = default;
  store_client& operator=(store_client&&) = delete;
  ~store_client() { goodbye(); }

  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  void set(std::string_view key, std::span<const std::byte> value) {
    detail::check_entry(key, value);
    static_cast<void>(call({wire::store_verb::set}, key, {}, value));
  }

  [[nodiscard]] std::vector<std::byte> get(std::string_view key, deadline until) {
    detail::check_key(key);
    const auto since = clock::now();
    if (!send({wire::store_verb::get}, key, {}, {}, (std::max)(until, after(std::chrono::seconds{1}))))
      fail_to_send(key);
    if (!await_response(until)) {
      // The response may be on its way already. It will be discarded, as the next request has another id.
      --last_id_;
      if (!send({wire::store_verb::cancel}, {}, {}, {}, after(std::chrono::seconds{1}))) fail_to_send(key);
      detail::throw_get_timed_out(key, since, " (the store at " + address_ + " is connected)");
    }
    return take_value();
  }

  [[nodiscard]] std::optional<std::vector<std::byte>> try_get(std::string_view key) {
    detail::check_key(key);
    const auto p = call({wire::store_verb::try_get}, key, {}, {});
    return p.answer == wire::store_answer::ok ? std::optional{take_value()} : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) {
    detail::check_key(key);
    wire::store_request q{wire::store_verb::add};
    q.number = delta;
    return call(q, key, {}, {}).number;
  }

  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired) {
    detail::check_entry(key, expected);
    detail::check_entry(key, desired);
    static_cast<void>(call({wire::store_verb::compare_set}, key, expected, desired));
    return take_value();
  }

  bool erase(std::string_view key) {
    detail::check_key(key);
    return call({wire::store_verb::erase}, key, {}, {}).answer == wire::store_answer::ok;
  }

  /// Disconnects from the host, and tells it so; the destructor does the same. Never waits. Later calls throw
  /// usage_error.
  void goodbye() noexcept {
    // A child made by fork() says nothing on its parent's connection.
    if (socket_ && owner_ == ::getpid() && !broken_) {
      std::array<std::byte, wire::store_request::head_bytes> head;
      wire::store_request q{wire::store_verb::goodbye};
      q.id = ++last_id_;
      wire::encode(q, head);
      static_cast<void>(os::send_some(socket_.native(), head));
    }
    socket_.reset();
  }

 private:
  /// Sends a request and waits for its response. Returns the response's head; take_value() returns its value.
  wire::store_response call(wire::store_request q, std::string_view key, std::span<const std::byte> expected,
                            std::span<const std::byte> value) {
    // A call after the deadline still has a second, so that a rank can tell the others why it failed.
    const deadline began = clock::now(), last = (std::max)(options_.until, after(std::chrono::seconds{1}));
    const deadline until = (std::min)(after(options_.timeout), last);
    if (!send(q, key, expected, value, until)) fail_to_send(key);
    if (!await_response(until)) {
      fail(errc::timed_out, 0,
           "the store at " + address_ + " did not answer within " + detail::in_seconds(until - began) +
               "; it answers while rank 0 waits in a call of its own: is rank 0 stuck?");
    }
    detail::throw_unless_done(response_.answer, key);
    return response_;
  }

  [[nodiscard]] std::vector<std::byte> take_value() {
    const auto begin = in_.begin() + wire::store_response::head_bytes;
    return {begin, begin + static_cast<std::ptrdiff_t>(response_.value_bytes)};
  }

  /// Sends a request. Returns false if the deadline passed before all of it was sent.
  bool send(wire::store_request q, std::string_view key, std::span<const std::byte> expected,
            std::span<const std::byte> value, deadline until) {
    require_usable();
    discard_response();
    q.id = ++last_id_;
    q.key_bytes = static_cast<std::uint16_t>(key.size());
    q.expected_bytes = static_cast<std::uint32_t>(expected.size());
    q.value_bytes = static_cast<std::uint32_t>(value.size());
    std::array<std::byte, wire::store_request::head_bytes> head;
    wire::encode(q, head);
    const auto key_bytes = bytes_of(key);
    for (const std::span<const std::byte> part : {std::span<const std::byte>{head}, key_bytes, expected, value}) {
      for (std::size_t sent = 0; sent < part.size();) {
        const auto r = os::send_some(socket_.native(), part.subspan(sent));
        if (r.closed) lost(r.error);
        sent += r.bytes;
        if (!r.would_block()) continue;
        if (clock::now() >= until) return false;
        os::wait_ready(socket_.native(), os::interest::write, remaining(until));
      }
    }
    return true;
  }

  /// Receives the response to the last request, and discards those to earlier ones. Returns false if the deadline
  /// passed.
  bool await_response(deadline until) {
    for (;;) {
      while (parse_response()) {
        if (response_.id == last_id_) return true;
        discard_response();
      }
      const std::size_t before = in_.size();
      in_.resize(before + chunk_bytes);
      const auto r = os::receive_some(socket_.native(), std::span{in_}.subspan(before));
      in_.resize(before + r.bytes);
      if (r.closed) lost(r.error);
      if (!r.would_block()) continue;
      if (clock::now() >= until) return false;
      os::wait_ready(socket_.native(), os::interest::read, remaining(until));
    }
  }

  /// Returns true if a complete response is at the front of `in_`.
  [[nodiscard]] bool parse_response() {
    if (in_.size() < wire::store_response::head_bytes) return false;
    const auto p = wire::decode_response(std::span<const std::byte>{in_}.first<wire::store_response::head_bytes>());
    if (!p) fail(errc::protocol, 0, "the store at " + address_ + " sent bytes that are no response");
    complete_ = in_.size() - wire::store_response::head_bytes >= p->value_bytes;
    if (complete_) response_ = *p;
    return complete_;
  }

  void discard_response() {
    if (!complete_) return;
    const auto used = wire::store_response::head_bytes + response_.value_bytes;
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(used));
    complete_ = false;
  }

  void require_usable() const {
    if (broken_) throw error{*broken_};
    if (!socket_) throw usage_error{"the store at " + address_ + " was already told goodbye"};
  }

  [[noreturn]] void lost(int cause) {
    fail(errc::peer_lost, cause,
         "lost the connection to the store at " + address_ +
             (cause != 0 ? ": " + std::generic_category().message(cause) : std::string{": rank 0 closed it"}) +
             "; did rank 0 end before the others had finished?");
  }
  [[noreturn]] void fail_to_send(std::string_view key) {
    fail(errc::timed_out, 0, "the store at " + address_ + " did not take a request for " + detail::quoted(key));
  }
  /// Throws an error, and makes every later call throw the same: the stream may have ended inside a request or
  /// response.
  [[noreturn]] void fail(errc kind, int cause, const std::string& message) {
    broken_.emplace(status{kind, 0, 0, static_cast<std::uint64_t>(cause)}, message, error_context{options_.rank});
    throw error{*broken_};
  }

  static constexpr std::size_t chunk_bytes = 4096;

  std::string address_;
  tcp_store_options options_;
  os::fd socket_;
  ::pid_t owner_ = ::getpid();
  std::uint64_t last_id_ = 0;
  std::vector<std::byte> in_;
  wire::store_response response_;
  bool complete_ = false;  // in_ begins with response_ and its value
  std::optional<error> broken_;
};

}  // namespace tutti
