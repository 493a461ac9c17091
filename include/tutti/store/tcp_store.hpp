#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/store_client.hpp>
#include <tutti/store/store_server.hpp>
#include <tutti/store/tcp_store_options.hpp>

namespace tutti {

/// A store over TCP or a Unix socket. One rank hosts it, the others connect. Models `store`; one thread at a time uses
/// an object. The host has no thread: it serves the other ranks during its own calls, above all while get() waits, so
/// it must call linger() before it stops calling the store. See store_server and store_client for errors and security.
class tcp_store {
 public:
  /// Hosts a store that listens on `where`; see store_server.
  [[nodiscard]] static tcp_store host(const os::endpoint& where, tcp_store_options options) {
    return tcp_store{std::make_unique<store_server>(where, std::move(options))};
  }
  /// Hosts a store on a listening socket, such as one inherited from a launcher.
  [[nodiscard]] static tcp_store host(os::fd listener, tcp_store_options options) {
    return tcp_store{std::make_unique<store_server>(std::move(listener), std::move(options))};
  }
  /// Connects to the host at "host:port" or "unix:name", which may not be up yet; see store_client.
  [[nodiscard]] static tcp_store connect(std::string address, tcp_store_options options, deadline until) {
    return tcp_store{std::make_unique<store_client>(std::move(address), std::move(options), until)};
  }

  void set(std::string_view key, std::span<const std::byte> value) {
    if (client_) return client_->set(key, value);
    detail::check_entry(key, value);
    change(key, [&](key_value_table& t) { return t.set(key, value); });
  }

  [[nodiscard]] std::vector<std::byte> get(std::string_view key, deadline until) {
    if (client_) return client_->get(key, until);
    detail::check_key(key);
    const auto since = clock::now();
    const std::vector<std::byte>* value = nullptr;
    if (!server_->serve_until(until, [&] { return (value = server_->table().find(key)) != nullptr; })) {
      detail::throw_get_timed_out(key, since, "; connected " + connected() + bracketed(server_->refusals()));
    }
    return *value;
  }

  [[nodiscard]] std::optional<std::vector<std::byte>> try_get(std::string_view key) {
    if (client_) return client_->try_get(key);
    detail::check_key(key);
    poll();
    const auto* value = server_->table().find(key);
    return value != nullptr ? std::optional{*value} : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) {
    if (client_) return client_->add(key, delta);
    detail::check_key(key);
    std::int64_t total = 0;
    change(key, [&](key_value_table& t) { return t.add(key, delta, total); });
    return total;
  }

  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired) {
    if (client_) return client_->compare_set(key, expected, desired);
    detail::check_entry(key, expected);
    detail::check_entry(key, desired);
    std::vector<std::byte> now;
    change(key, [&](key_value_table& t) {
      const auto answer = t.compare_set(key, expected, desired);
      if (const auto* value = t.find(key)) now = *value;
      return answer;
    });
    return now;
  }

  bool erase(std::string_view key) {
    if (client_) return client_->erase(key);
    detail::check_key(key);
    bool found = false;
    change(key, [&](key_value_table& t) {
      found = t.erase(key);
      return wire::store_answer::absent;
    });
    return found;
  }

  /// Serves the requests that have arrived, without waiting; for a host that waits for something else. Does nothing at
  /// a client.
  void poll() {
    if (server_) server_->step(duration{0});
  }

  /// Serves until all other ranks have connected and disconnected; returns false if the deadline passed first. A client
  /// disconnects and returns true at once.
  bool linger(deadline until) {
    if (server_) return server_->linger(until);
    client_->goodbye();
    return true;
  }

  /// Serves until `done()` returns true; the rest as above.
  template <class Done>
  bool linger(deadline until, Done&& done) {
    if (server_) return server_->linger(until, std::forward<Done>(done));
    client_->goodbye();
    return true;
  }

  /// Returns the server of a host; null at a client.
  [[nodiscard]] store_server* server() noexcept { return server_.get(); }

  /// Returns the address that clients connect to.
  [[nodiscard]] std::string address() const { return server_ ? server_->endpoint().to_string() : client_->address(); }

 private:
  explicit tcp_store(std::unique_ptr<store_server> server) noexcept : server_(std::move(server)) {}
  explicit tcp_store(std::unique_ptr<store_client> client) noexcept : client_(std::move(client)) {}

  template <class Apply>
  void change(std::string_view key, Apply&& apply) {
    poll();
    detail::throw_unless_done(server_->change(key, std::forward<Apply>(apply)), key);
  }

  [[nodiscard]] std::string connected() const {
    std::string text = "so far: ";
    std::size_t shown = 0;
    for (const auto rank : server_->ranks()) {
      if (shown++ == 16) return text + ", ...";
      text += (shown == 1 ? "rank " : ", ") + std::to_string(rank);
    }
    return shown == 0 ? text + "no other rank" : text;
  }
  static std::string bracketed(const std::string& text) { return text.empty() ? text : " (" + text + ")"; }

  std::unique_ptr<store_server> server_;
  std::unique_ptr<store_client> client_;
};

}  // namespace tutti
