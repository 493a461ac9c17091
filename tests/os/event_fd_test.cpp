#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <tutti/os/event_fd.hpp>
#include <tutti/os/wait_ready.hpp>

using namespace std::chrono_literals;
using tutti::os::event_fd;

namespace {

bool readable(const event_fd& e) {
  return tutti::os::wait_ready(e.native(), tutti::os::interest::read, tutti::duration{0});
}

}  // namespace

TEST_CASE("event_fd is readable from notify() to drain(), however often it was notified") {
  event_fd e;
  CHECK_FALSE(readable(e));
  CHECK_FALSE(e.drain());
  e.notify();
  e.notify();
  CHECK(readable(e));
  CHECK(e.drain());
  CHECK_FALSE(readable(e));
  CHECK_FALSE(e.drain());
}

TEST_CASE("event_fd leaves errno alone") {
  event_fd e;
  errno = 77;
  CHECK_FALSE(e.drain());
  e.notify();
  CHECK(errno == 77);
}

TEST_CASE("event_fd ends a wait of another thread") {
  event_fd e;
  std::thread other([&] { e.notify(); });
  CHECK(tutti::os::wait_ready(e.native(), tutti::os::interest::read, 60s));
  other.join();
}

TEST_CASE("event_fd takes over a descriptor that was made elsewhere") {
  tutti::os::fd made{::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};
  const int number = made.native();
  event_fd e{std::move(made)};
  CHECK(e.native() == number);
  CHECK(e.drain());
}
