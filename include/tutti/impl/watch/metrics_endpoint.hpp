#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/library_thread.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/wait_ready.hpp>
#include <tutti/watch/metrics_endpoint.hpp>

namespace tutti::watch {

namespace detail {

TUTTI_DECL os::endpoint loopback_at(std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  return {reinterpret_cast<const sockaddr*>(&a), sizeof a};
}

/// Waits until the socket is ready. Returns false if it is too late, or the server ends.
TUTTI_DECL bool wait_for(int socket, short events, int ends, deadline until) noexcept {
  for (;;) {
    std::array<pollfd, 2> both{{{socket, events, 0}, {ends, POLLIN, 0}}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining(until)).count();
    if (left == 0) return false;
    const int ready = ::poll(both.data(), both.size(), static_cast<int>((std::min)(left, decltype(left){60'000})));
    if (both[1].revents != 0) return false;
    if (ready > 0) return true;
  }
}

TUTTI_DECL std::string read_head(int socket, int ends, deadline until) {
  constexpr std::size_t most = 8192;
  std::string head;
  while (head.size() < most && head.find("\r\n\r\n") == std::string::npos) {
    std::array<char, 1024> part;
    const auto n = ::recv(socket, part.data(), part.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (n > 0)
      head.append(part.data(), static_cast<std::size_t>(n));
    else if (!wait_for(socket, POLLIN, ends, until))
      break;
  }
  return head;
}

TUTTI_DECL void send_whole(int socket, std::string_view text, int ends, deadline until) noexcept {
  while (!text.empty()) {
    const os::io_result sent = os::send_some(socket, std::as_bytes(std::span{text}));
    text.remove_prefix(sent.bytes);
    if (sent.closed) return;
    if (sent.would_block() && !wait_for(socket, POLLOUT, ends, until)) return;
  }
}

}  // namespace detail

TUTTI_DECL metrics_server::metrics_server(std::uint16_t port)
    : port_(port), listener_(os::listen_on(detail::loopback_at(port))), gpus_(gpu_readings::shared()) {
  listener_.end_in_children();
  try {
    thread_ = ::tutti::detail::library_thread([](void* self) { static_cast<metrics_server*>(self)->serve(); }, this);
  } catch (const std::system_error&) {
    throw error{{errc::out_of_resources}, "no thread for the metrics at port " + std::to_string(int{port})};
  }
}

TUTTI_DECL metrics_server::~metrics_server() {
  ends_.notify();
  thread_.join();
}

TUTTI_DECL std::shared_ptr<metrics_server> metrics_server::at(std::uint16_t port) {
  static std::mutex alone;
  static std::vector<std::weak_ptr<metrics_server>> all;
  const std::scoped_lock guard{alone};
  std::erase_if(all, [](const auto& s) { return s.expired(); });
  for (const auto& each : all)
    if (auto s = each.lock(); s && s->port_ == port && !s->maker_.inherited()) return s;
  all.emplace_back();
  auto fresh = std::make_shared<metrics_server>(port);
  all.back() = fresh;
  return fresh;
}

TUTTI_DECL void metrics_server::add(const metrics& world) {
  const auto guard = lock();
  worlds_.push_back(&world);
}
TUTTI_DECL void metrics_server::remove(const metrics& world) noexcept {
  const auto guard = lock();
  std::erase(worlds_, &world);
}

TUTTI_DECL void metrics_server::serve() {
  for (;;) {
    std::array<pollfd, 2> both{{{listener_.native(), POLLIN, 0}, {ends_.native(), POLLIN, 0}}};
    while (::poll(both.data(), both.size(), -1) < 0 && errno == EINTR) {
    }
    if (both[1].revents != 0) return;
    const os::socket_result who = os::accept_connection(listener_.native());
    if (!who.socket) {
      if (who.error != EAGAIN) os::wait_ready(ends_.native(), os::interest::read, std::chrono::milliseconds{100});
      continue;
    }
    try {
      const deadline until = after(std::chrono::seconds{2});
      const int socket = who.socket.native(), ends = ends_.native();
      detail::send_whole(socket, answer(detail::read_head(socket, ends, until)), ends, until);
      ::shutdown(who.socket.native(), SHUT_WR);
    } catch (const std::exception&) {  // no memory: the connection ends without an answer
    }
  }
}

TUTTI_DECL std::string metrics_server::answer(const std::string& request) {
  const auto reply = [&](const char* status, const char* more, const std::string& body) {
    const bool head = request.starts_with("HEAD ");
    return std::string("HTTP/1.1 ") + status + "\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n" + more + "\r\n" + (head ? "" : body);
  };
  constexpr const char* plain = "Content-Type: text/plain; charset=utf-8\r\n";
  if (request.find("\r\n\r\n") == std::string::npos) return reply("400 Bad Request", plain, "no request of HTTP\n");
  const std::string first = request.substr(0, request.find("\r\n"));
  const std::size_t path = first.find(' ') + 1, end = first.find_first_of(" ?", path);
  if (!first.starts_with("GET ") && !first.starts_with("HEAD "))
    return reply("405 Method Not Allowed", "Allow: GET, HEAD\r\nContent-Type: text/plain\r\n", "GET only\n");
  if (first.substr(path, end - path) != "/metrics") return reply("404 Not Found", plain, "see /metrics\n");
  std::vector<metrics> now;
  {
    const auto guard = lock();
    for (const metrics* m : worlds_) now.push_back(*m);
  }
  return reply("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", text_of(now, gpus_->last()));
}

TUTTI_DECL metrics_endpoint::metrics_endpoint(std::uint16_t port, metrics_place where)
    : server_(metrics_server::at(port)), counted_(std::move(where)) {
  counted_.see(counted_.where().joined);
  server_->add(counted_);
}
TUTTI_DECL metrics_endpoint::~metrics_endpoint() { server_->remove(counted_); }

TUTTI_DECL void metrics_endpoint::take(const operation& o, std::int64_t issued, std::int64_t started,
                                       std::int64_t ended, const call_site&) {
  const auto guard = server_->lock();
  counted_.take(o, issued, started, ended);
}
TUTTI_DECL void metrics_endpoint::take_span(const ::tutti::detail::time_span& s, std::int64_t begun,
                                            std::int64_t middle, std::int64_t ended) {
  const auto guard = server_->lock();
  counted_.take_span(s, begun, middle, ended);
}

TUTTI_DECL void metrics_endpoint::end_batch(std::int64_t now) {
  const auto guard = server_->lock();
  counted_.see(now);
}

}  // namespace tutti::watch
