#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "launcher.hpp"

namespace {

using namespace tutti_test::launcher;

// A terminal of its own, with tutti-run as the leader of its session.
class terminal {
 public:
  terminal() : fd_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (fd_ < 0 || ::grantpt(fd_) != 0 || ::unlockpt(fd_) != 0) throw std::runtime_error("posix_openpt");
    std::array<char, 64> name{};
    ::ptsname_r(fd_, name.data(), name.size());
    name_ = name.data();
  }
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;
  ~terminal() { hang_up(); }

  void take() const {
    ::setsid();
    const int end = ::open(name_.c_str(), O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(end, fd);
    ::close(end);
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
  }

  void type(std::string_view keys) const { CHECK(::write(fd_, keys.data(), keys.size()) == std::ssize(keys)); }

  void await(std::string_view looked_for, int count = 1) {
    const auto end = deadline();
    while (job::occurrences(shown_, looked_for) < count) {
      pollfd watched{fd_, POLLIN, 0};
      REQUIRE_MESSAGE(::poll(&watched, 1, 1000) >= 0, shown_);
      std::array<char, 4096> buffer;
      const auto length = (watched.revents & POLLIN) ? ::read(fd_, buffer.data(), buffer.size()) : 0;
      if (length > 0) shown_.append(buffer.data(), static_cast<std::size_t>(length));
      REQUIRE_MESSAGE(std::chrono::steady_clock::now() < end,
                      "waiting for '" << std::string{looked_for} << "': " << shown_);
    }
  }

  const std::string& shown() const noexcept { return shown_; }

  void hang_up() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  std::string name_;
  std::string shown_;
};

constexpr std::string_view sleeper = "echo pid $$; exec sleep 1000";

}  // namespace

TEST_CASE("run/terminal: a single rank writes to the terminal itself") {
  terminal screen;
  job running{script({"-n", "1"}, "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo direct"), [&] { screen.take(); }};
  screen.await("direct");
  CHECK(running.wait().status == 0);
  CHECK(screen.shown().starts_with("direct"));
}

TEST_CASE("run/terminal: prefixes have a colour there, unless that is refused") {
  terminal screen;
  job running{script({"-n", "2"}, "echo hello"), [&] { screen.take(); }};
  screen.await("hello", 2);
  CHECK(running.wait().status == 0);
  CHECK(contains(screen.shown(), "\033[36m[0]\033[0m hello"));
  CHECK(contains(screen.shown(), "\033[33m[1]\033[0m hello"));

  terminal sober;
  job colourless{script({"-n", "2"}, "echo hello"), [&] {
                   sober.take();
                   ::setenv("NO_COLOR", "1", 1);
                 }};
  sober.await("[0] hello");
  CHECK(colourless.wait().status == 0);
  CHECK(!contains(sober.shown(), "\033"));
}

TEST_CASE("run/terminal: rank 0 reads what is typed and is not stopped for it") {
  terminal screen;
  job running{script({"-n", "2"}, "read line; echo rank $RANK got $line"), [&] { screen.take(); }};
  screen.await("rank 1 got");
  screen.type("something\n");
  screen.await("rank 0 got something");
  CHECK(running.wait().status == 0);
}

TEST_CASE("run/terminal: a prompt is shown before it is answered") {
  terminal screen;
  job running{script({"-n", "2"}, "[ $RANK = 0 ] || exit 0\nprintf 'Continue? '; read line; echo got $line"),
              [&] { screen.take(); }};
  screen.await("Continue? ");
  screen.type("yes\n");
  screen.await("got yes");
  CHECK(running.wait().status == 0);
}

TEST_CASE("run/terminal: Ctrl-C ends the job") {
  terminal screen;
  job running{script({"-n", "2"}, sleeper), [&] { screen.take(); }};
  screen.await("pid ", 2);
  screen.type("\x03");
  screen.await("interrupted by SIGINT");
  CHECK(running.wait().status == 130);
}

TEST_CASE("run/terminal: a terminal that goes away leaves no rank behind") {
  terminal screen;
  job running{script({"-n", "2"}, sleeper), [&] { screen.take(); }};
  screen.await("\n", 2);
  const auto ranks = numbers_after(screen.shown(), "pid");
  REQUIRE(ranks.size() == 2);
  screen.hang_up();
  CHECK(running.wait().status == 129);
  CHECK(eventually([&] { return std::ranges::none_of(ranks, is_alive); }));
}

TEST_CASE("run/terminal: Ctrl-\\ shows the status, and the job goes on") {
  terminal screen;
  job running{script({"-n", "2"}, sleeper), [&] { screen.take(); }};
  screen.await("pid ", 2);
  for (const int times : {1, 2}) {
    screen.type("\x1c");
    screen.await("No rank is in a world", times);
    screen.await("starting", 2 * times);
  }
  screen.type("\x03");
  screen.await("interrupted by SIGINT");
  CHECK(running.wait().status == 130);
}

TEST_CASE("run/terminal: --status refreshes its table in place, until the job has ended") {
  job running{script({"-n", "2"}, sleeper)};
  running.await("pid ", 2);
  terminal screen;
  job watching{{"--status", std::to_string(running.pid())}, [&] { screen.take(); }};
  screen.await("\033[4A\r", 2);  // lines: about the job, of heads, and for each rank
  running.signal(SIGTERM);
  CHECK(running.wait().status == 143);
  screen.await("The job has ended.");
  CHECK(watching.wait().status == 0);
}
