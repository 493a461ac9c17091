#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include <tutti/os/fd.hpp>
#include <tutti/os/wait_ready.hpp>

using namespace std::chrono_literals;
using tutti::os::interest;
using tutti::os::wait_ready;

TEST_CASE("wait_ready: what can be read or written, and what is broken, is ready; nothing else is") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const tutti::os::fd here{ends[0]};
  tutti::os::fd there{ends[1]};
  errno = 77;
  CHECK_FALSE(wait_ready(here.native(), interest::read, 0s));
  CHECK_FALSE(wait_ready(here.native(), interest::read, -1s));  // a deadline that has passed: no wait for ever
  CHECK_FALSE(wait_ready(here.native(), interest::read, 1ms));
  CHECK(wait_ready(here.native(), interest::write, 0s));
  CHECK(wait_ready(here.native(), interest::read_write, 0s));
  const char text[4096]{};
  while (::write(here.native(), text, sizeof text) > 0) continue;
  errno = 77;
  CHECK_FALSE(wait_ready(here.native(), interest::write, 0s));
  CHECK(wait_ready(there.native(), interest::read, 60s));
  there.reset();
  CHECK(wait_ready(here.native(), interest::read, 60s));
  CHECK(wait_ready(here.native(), interest::write, 60s));
  CHECK(wait_ready(1 << 20, interest::read, 60s));  // no descriptor: the next read says so
  CHECK(errno == 77);
}
