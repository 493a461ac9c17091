#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <tutti/os/fd.hpp>
#include <utility>
#include <vector>

#include "support/descriptor_limit.hpp"
#include "support/forked_child.hpp"

namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }

tutti::os::fd open_null() { return tutti::os::fd{::open("/dev/null", O_RDWR | O_CLOEXEC)}; }

}  // namespace

TEST_CASE("fd closes once, and moving moves the duty") {
  int number = -1;
  {
    tutti::os::fd a = open_null();
    number = a.native();
    REQUIRE(is_open(number));
    tutti::os::fd b = std::move(a);
    CHECK_FALSE(a);
    CHECK(b.native() == number);
    tutti::os::fd c = open_null();
    const int replaced = c.native();
    c = std::move(b);
    CHECK_FALSE(is_open(replaced));
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("fd never has the number of a standard stream, whatever the program was started without") {
  const int saved = ::dup(STDIN_FILENO);
  REQUIRE(saved > STDERR_FILENO);
  ::close(STDIN_FILENO);
  int number = 0;
  {
    tutti::os::fd a = open_null();
    number = a.native();
    CHECK(number > STDERR_FILENO);
    CHECK_FALSE(is_open(STDIN_FILENO));
    CHECK((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
    a.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
    CHECK(a.native() > STDERR_FILENO);
    CHECK_FALSE(is_open(STDIN_FILENO));
    const tutti_test::descriptor_limit tight{1};
    errno = 0;
    const tutti::os::fd none = open_null();
    CHECK(errno == EMFILE);
    CHECK_FALSE(none);
  }
  CHECK_FALSE(is_open(STDIN_FILENO));
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
}

TEST_CASE("fd::release keeps the descriptor open") {
  tutti::os::fd a = open_null();
  const int number = a.release();
  CHECK_FALSE(a);
  CHECK(is_open(number));
  ::close(number);
}

TEST_CASE("closing an fd leaves errno alone") {
  tutti::os::fd a{1 << 20};  // not open: close() fails
  errno = 1234;
  a.reset();
  CHECK(errno == 1234);
}

TEST_CASE("fd::duplicate is close-on-exec, and running out is a typed error with advice") {
  const tutti::os::fd a = open_null();
  const tutti::os::fd b = a.duplicate();
  CHECK((::fcntl(b.native(), F_GETFD) & FD_CLOEXEC) != 0);

  CHECK_THROWS_AS((void)tutti::os::fd{}.duplicate(), tutti::error);  // and UBSan needs descriptors for a first look

  std::optional<tutti_test::descriptor_limit> tight{b.native() + 1};
  std::vector<tutti::os::fd> held;
  try {
    for (int i = 0; i < 2048; ++i) held.push_back(a.duplicate());
    tight.reset();
    FAIL("no error");
  } catch (const tutti::error& e) {
    tight.reset();
    CHECK(e.kind() == tutti::errc::out_of_resources);
    CHECK(e.cause().detail == EMFILE);
    CHECK(std::string{e.what()}.find("ulimit -n") != std::string::npos);
  }
}

// Its other end would take this process for alive as long as the child lives.
TEST_CASE("fd: what a child must not keep is ended in it, and its number stays taken") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const tutti::os::fd other{ends[0]};
  tutti::os::fd mine{ends[1]};
  const tutti::os::fd kept = open_null();
  mine.end_in_children();
  tutti_test::forked_child child{[&] {
    if (!is_open(mine.native()) || ::write(mine.native(), "x", 1) != -1) return 1;
    const tutti::os::fd opened = open_null();
    if (opened.native() == mine.native() || !is_open(kept.native())) return 2;
    const tutti_test::forked_child grandchild{[] { return ::pause(); }};
    return ::pause();
  }};
  CHECK(::write(mine.native(), "y", 1) == 1);
  char got = 0;
  CHECK(::read(other.native(), &got, 1) == 1);
  CHECK(got == 'y');
  mine.reset();
  CHECK(::read(other.native(), &got, 1) == 0);  // the end, though the child lives
  child.signal(SIGKILL);
  CHECK(child.wait() == -SIGKILL);
}

TEST_CASE("fd: a number that was closed means nothing to children any more") {
  tutti::os::fd a = open_null();
  a.end_in_children();
  const int number = a.native();
  a.reset();
  const tutti::os::fd b = open_null();
  REQUIRE(b.native() == number);
  tutti_test::forked_child child{[&] { return ::write(b.native(), "x", 1) == 1 ? 0 : 1; }};
  CHECK(child.wait() == 0);
}
