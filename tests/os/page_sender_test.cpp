#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tutti/os/event_fd.hpp>
#include <tutti/os/page_sender.hpp>

#include "support/connection.hpp"
#include "support/descriptor_limit.hpp"

namespace {

using tutti::os::io_result;
using tutti::os::page_sender;
using tutti_test::connect_on_loopback;

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 131 / 128);
  return all;
}

void receive(int socket, std::span<std::byte> into) {
  while (!into.empty()) {
    const io_result r = tutti::os::receive_some(socket, into);
    if (r.closed) return;
    into = into.subspan(r.bytes);
  }
}

/// Without a page_sender.
bool permitted() {
  const auto c = connect_on_loopback();
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const tutti::os::fd out{ends[0]}, in{ends[1]};
  char word[] = "word";
  const iovec all{word, sizeof word};
  return ::vmsplice(in.native(), &all, 1, 0) == sizeof word &&
         ::splice(out.native(), nullptr, c.client.native(), nullptr, sizeof word, 0) == sizeof word;
}

/// What was sent is what its memory holds when it is received; else what it held when it was sent.
bool arrives_changed(page_sender& s, const tutti_test::connection& c) {
  std::vector<std::byte> all(100'000, std::byte{1}), got(all.size());
  REQUIRE(s.send(c.client.native(), all).bytes == all.size());
  std::ranges::fill(all, std::byte{2});
  receive(c.server.native(), got);
  if (got == all) return true;
  CHECK(got == std::vector<std::byte>(got.size(), std::byte{1}));
  return false;
}

bool sigpipe_is_pending() {
  sigset_t pending;
  ::sigemptyset(&pending);
  REQUIRE(::sigpending(&pending) == 0);
  return ::sigismember(&pending, SIGPIPE) == 1;
}
bool sigpipe_is_blocked() {
  sigset_t now;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, nullptr, &now) == 0);
  return ::sigismember(&now, SIGPIPE) == 1;
}

/// The reader has gone, and the sender has heard of it.
tutti_test::connection without_reader() {
  auto c = connect_on_loopback();
  const std::byte one{1};
  (void)tutti::os::send_some(c.client.native(), std::span{&one, 1});
  c.server.reset();  // with a byte unread
  while (!tutti::os::send_some(c.client.native(), std::span{&one, 1}).closed) {
  }
  return c;
}

}  // namespace

TEST_CASE("page_sender: more than any buffer holds arrives as it was, from any address") {
  const auto c = connect_on_loopback();
  const auto all = numbered((9 << 20) + 77);
  for (const std::size_t skipped : {std::size_t{0}, std::size_t{1}, std::size_t{4095}}) {
    page_sender s;
    std::span<const std::byte> rest = std::span{all}.subspan(skipped);
    std::vector<std::byte> got(rest.size());
    std::span<std::byte> room{got};
    int cut_short = 0;
    while (!room.empty()) {
      const io_result sent = s.send(c.client.native(), rest);
      REQUIRE_FALSE(sent.closed);
      cut_short += sent.bytes < rest.size();
      rest = rest.subspan(sent.bytes);
      room = room.subspan(tutti::os::receive_some(c.server.native(), room).bytes);
    }
    CHECK(rest.empty());
    CHECK(cut_short > 0);
    CHECK(std::ranges::equal(got, std::span{all}.subspan(skipped)));
  }
}

TEST_CASE("page_sender: nothing is copied before the receiver reads, where this system permits it") {
  if (!permitted()) {
    MESSAGE("skipped: this system does not permit vmsplice and splice");
    return;
  }
  const auto c = connect_on_loopback();
  page_sender s;
  CHECK(arrives_changed(s, c));
  CHECK(s.able());
}

TEST_CASE("page_sender: while what goes to one socket waits for room, what goes to others is copied") {
  const auto slow = connect_on_loopback(), other = connect_on_loopback();
  page_sender s;
  const auto much = numbered(64 << 20);
  std::size_t sent = 0;
  for (std::size_t n = 1; n != 0; sent += n) n = s.send(slow.client.native(), std::span{much}.subspan(sent)).bytes;
  REQUIRE(sent < much.size());
  CHECK_FALSE(arrives_changed(s, other));
  s.forget(other.client.native());
  CHECK_FALSE(arrives_changed(s, other));
  s.forget(slow.client.native());
  CHECK(arrives_changed(s, other) == permitted());
}

TEST_CASE("page_sender: without descriptors it copies") {
  const auto c = connect_on_loopback();
  auto all = numbered(100'000);
  const auto expected = all;
  std::vector<std::byte> got(all.size());
  page_sender s;
  {
    const tutti_test::descriptor_limit none{std::max(c.client.native(), c.server.native()) + 1};
    REQUIRE(s.send(c.client.native(), all).bytes == all.size());
  }
  std::ranges::fill(all, std::byte{2});
  receive(c.server.native(), got);
  CHECK(got == expected);
}

TEST_CASE("page_sender: what is no socket is an error, and nothing is lent any more") {
  const tutti::os::event_fd no_socket;
  const auto c = connect_on_loopback();
  page_sender s;
  const io_result r = s.send(no_socket.native(), numbered(100'000));
  CHECK(r.bytes == 0);
  CHECK(r.closed);
  CHECK(r.error == ENOTSOCK);
  CHECK_FALSE(s.able());
  CHECK_FALSE(arrives_changed(s, c));
}

TEST_CASE("page_sender: memory that nobody may read is an error") {
  const auto c = connect_on_loopback();
  page_sender s;
  const io_result r = s.send(c.client.native(), {reinterpret_cast<const std::byte*>(16), 100'000});
  CHECK(r.bytes == 0);
  CHECK(r.closed);
  CHECK(r.error == EFAULT);
}

TEST_CASE("page_sender: a reader that has gone is an error, and no signal") {
  const auto c = without_reader();
  page_sender s;
  const auto all = numbered(100'000);
  const io_result r = s.send(c.client.native(), all);
  CHECK(r.bytes == 0);
  CHECK(r.closed);
  CHECK(r.error == EPIPE);
  CHECK_FALSE(sigpipe_is_pending());
  CHECK_FALSE(sigpipe_is_blocked());
}

TEST_CASE("page_sender: a signal that was there before stays") {
  const auto c = without_reader();
  sigset_t sigpipe, before;
  ::sigemptyset(&sigpipe);
  ::sigaddset(&sigpipe, SIGPIPE);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &sigpipe, &before) == 0);
  REQUIRE(::raise(SIGPIPE) == 0);
  page_sender s;
  const auto all = numbered(100'000);
  CHECK(s.send(c.client.native(), all).closed);
  CHECK(sigpipe_is_pending());
  CHECK(sigpipe_is_blocked());
  constexpr ::timespec at_once{};
  CHECK(::sigtimedwait(&sigpipe, nullptr, &at_once) == SIGPIPE);
  REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
}
