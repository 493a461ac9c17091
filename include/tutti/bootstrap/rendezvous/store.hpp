#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tutti/bootstrap/init_links.hpp>
#include <tutti/bootstrap/rendezvous/open.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/store/file_store.hpp>
#include <tutti/store/tcp_store.hpp>

namespace tutti::detail {

/// Rendezvous store of any kind, restricted to the keys of one roll call. Models `store`.
template <class Sockets = tcp_store, class File = file_store>
class rendezvous_store {
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }

 public:
  rendezvous_store(const rendezvous_url& url, const participant& who) : opener_(url, who) {
    if (url.kind == rendezvous_url::scheme::file)
      file_ = std::make_unique<File>(url.path, file_store_options{.timeout = remaining(who.until)});
    else
      sockets_.emplace(opener_.open());
  }

  /// Moves on to the next roll call at this rendezvous: in a file, to the next prefix; over sockets, to a new store,
  /// which the host opens once it has closed this one.
  void renew() {
    if (file_) {
      prefix_ = "roll-call/" + std::to_string(++roll_calls_) + "/";
      return;
    }
    sockets_.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    sockets_.emplace(opener_.open());
  }

  void set(std::string_view key, std::span<const std::byte> value) {
    file_ ? file_->set(full(key), value) : sockets_->set(full(key), value);
  }
  [[nodiscard]] std::vector<std::byte> get(std::string_view key, deadline until) {
    return file_ ? file_->get(full(key), until) : sockets_->get(full(key), until);
  }
  [[nodiscard]] std::optional<std::vector<std::byte>> try_get(std::string_view key) {
    return file_ ? file_->try_get(full(key)) : sockets_->try_get(full(key));
  }
  std::int64_t add(std::string_view key, std::int64_t delta) {
    return file_ ? file_->add(full(key), delta) : sockets_->add(full(key), delta);
  }
  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired) {
    return file_ ? file_->compare_set(full(key), expected, desired)
                 : sockets_->compare_set(full(key), expected, desired);
  }
  bool erase(std::string_view key) { return file_ ? file_->erase(full(key)) : sockets_->erase(full(key)); }

  /// Returns true if this process serves the others.
  [[nodiscard]] bool is_host() { return server() != nullptr; }

  /// Returns the address at which ranks of other machines have reached the host; empty if there are none, or this
  /// process is not the host.
  [[nodiscard]] std::string reached_at() {
    const auto where = is_host() ? server()->reached_at() : std::nullopt;
    return where ? host_of(*where) : "";
  }

  /// Returns what the host adds to the list of absent ranks: those that it has refused, and those that cannot reach it.
  [[nodiscard]] std::string remark() {
    const std::string refused = is_host() ? server()->refusals() : "";
    const std::string& caveat = opener_.caveat();
    return caveat + (refused.empty() ? "" : (caveat.empty() ? "(" : " (") + refused + ".)");
  }

  /// Returns the reason why the host cannot accept ranks that connect; ok if there is none.
  [[nodiscard]] status accept_failure() {
    const int number = is_host() ? server()->exhausted() : 0;
    if (number == 0) return {};
    return {errc::out_of_resources, 0, -1, static_cast<std::uint64_t>(number)};
  }

  /// Leaves the store. The host serves until all other ranks of its job have left; it does not wait for processes of
  /// another job.
  void leave(deadline until) {
    if (store_server* s = server()) static_cast<void>(s->serve_until(until, [s] { return s->members() == 0; }));
    close();
  }

  /// Leaves after a failure. The host serves for another `moment`, so that ranks that arrive late hear of the failure.
  void leave_failed(duration moment) noexcept try {
    const deadline until = after(moment);
    if (store_server* s = server())
      static_cast<void>(s->serve_until(until, [] { return false; }));
    else if (file_)
      std::this_thread::sleep_until(until);
    close();
  } catch (...) {
  }

 private:
  [[nodiscard]] store_server* server() { return sockets_ ? sockets_->server() : nullptr; }
  void close() noexcept {
    sockets_.reset();
    file_.reset();
  }

  store_opener opener_;
  std::string prefix_ = "roll-call/0/";
  int roll_calls_ = 0;
  // Exactly one of them is set.
  std::optional<Sockets> sockets_;
  std::unique_ptr<File> file_;
};

}  // namespace tutti::detail
