#pragma once
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>

#include "transport/raw_tcp.hpp"

namespace tcp_world {

/// A machine in the middle: takes connections, makes one to another place for each, and passes on what comes, both
/// ways, after `meddle(offset, bytes)` has seen what goes there. If that returns false, the connection is cut.
class proxy {
 public:
  using meddler = std::function<bool(std::uint64_t offset, std::span<std::byte> bytes)>;

  proxy(std::string to, meddler m) : to_(std::move(to)), meddle_(std::move(m)) {
    listener_ = tutti::os::listen_on(tutti::os::resolve("127.0.0.1", 0).front());
    endpoint_ = tutti::os::local_endpoint(listener_.native()).to_string();
    threads_.emplace_back([this] {
      while (!ends_) {
        pollfd p{listener_.native(), POLLIN, 0};
        if (::poll(&p, 1, 20) <= 0) continue;
        auto near = tutti::os::accept_connection(listener_.native());
        if (near.socket) pass_on(std::move(near.socket));
      }
    });
  }
  proxy(const proxy&) = delete;
  ~proxy() {
    ends_ = true;
    threads_.front().join();
    for (auto& pair : pairs_)
      for (auto& end : pair) ::shutdown(end.native(), SHUT_RDWR);
    threads_.pop_front();
    for (auto& t : threads_) t.join();
  }
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }

 private:
  using ends = std::array<tutti::os::fd, 2>;

  void pass_on(tutti::os::fd near) {
    tutti::os::fd far = raw_tcp::connect(to_);
    if (!far) return;
    const ends& both = pairs_.emplace_back(ends{std::move(near), std::move(far)});
    for (const std::size_t from : {0U, 1U})
      threads_.emplace_back([this, &both, from] {
        pump(both[from], both[1 - from], from == 0);
        ::shutdown(both[1 - from].native(), SHUT_WR);
      });
  }
  void pump(const tutti::os::fd& from, const tutti::os::fd& to, bool there) {
    std::vector<std::byte> some(1 << 16);
    for (std::uint64_t offset = 0;;) {
      const auto got = tutti::os::receive_some(from.native(), std::span{some});
      if (got.closed) return;
      if (got.bytes == 0) {
        await(from, POLLIN);
        continue;
      }
      auto rest = std::span{some}.first(got.bytes);
      if (there) {
        const std::scoped_lock one_at_a_time(meddling_);
        if (!meddle_(offset, rest)) return;
      }
      offset += got.bytes;
      while (!rest.empty()) {
        const auto sent = tutti::os::send_some(to.native(), std::span<const std::byte>{rest});
        if (sent.closed) return;
        rest = rest.subspan(sent.bytes);
        if (sent.bytes == 0) await(to, POLLOUT);
      }
    }
  }
  static void await(const tutti::os::fd& s, short what) {
    pollfd p{s.native(), what, 0};
    ::poll(&p, 1, 1000);
  }

  std::string to_, endpoint_;
  meddler meddle_;
  std::mutex meddling_;
  tutti::os::fd listener_;
  std::atomic<bool> ends_{false};
  std::list<ends> pairs_;
  std::list<std::thread> threads_;
};

}  // namespace tcp_world
