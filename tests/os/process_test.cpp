#include <doctest/doctest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <support/descriptor_limit.hpp>
#include <support/forked_child.hpp>
#include <support/on_one_cpu.hpp>
#include <thread>
#include <tutti/core/deadline.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/process_watch.hpp>

using namespace std::chrono_literals;
using namespace tutti::os;
using tutti_test::forked_child;

#if defined(__SANITIZE_THREAD__)
constexpr bool threads_after_fork = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool threads_after_fork = false;
#else
constexpr bool threads_after_fork = true;
#endif
#else
constexpr bool threads_after_fork = true;
#endif

namespace {

int sleep_for_ever() {
  for (;;) ::pause();
}

template <class Condition>
bool soon(Condition condition) {
  const auto until = tutti::after(20s);
  while (!condition()) {
    if (tutti::clock::now() > until) return false;
    std::this_thread::sleep_for(100us);
  }
  return true;
}

}  // namespace

TEST_CASE("this process is alive, and its number at another time is not it") {
  const auto start = process_start_time(::getpid());
  REQUIRE(start.has_value());
  CHECK(is_alive(::getpid(), *start));
  CHECK_FALSE(is_alive(::getpid(), *start + 1));
  CHECK_FALSE(process_start_time(-1).has_value());
  CHECK_FALSE(is_alive(-1, 0));
  CHECK_FALSE(is_alive(0, 0));
}

TEST_CASE("a killed process is dead, before and after it was waited for") {
  forked_child child{sleep_for_ever};
  const auto pid = child.pid();
  const auto start = process_start_time(pid).value();
  CHECK(is_alive(pid, start));
  child.signal(SIGKILL);
  CHECK(soon([&] { return !is_alive(pid, start); }));
  child.wait();
  CHECK_FALSE(is_alive(pid, start));
}

TEST_CASE("a process is alive, too, where no descriptor is left to see it with") {
  forked_child child{sleep_for_ever};
  const auto start = process_start_time(child.pid()).value();
  const fd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const tutti_test::descriptor_limit none{next.native()};
  REQUIRE_FALSE(process_start_time(child.pid()).has_value());
  CHECK(is_alive(child.pid(), start));
  CHECK(is_alive(::getpid(), start));
  child.signal(SIGKILL);
  child.wait();
  CHECK_FALSE(is_alive(child.pid(), start));
}

TEST_CASE("a stopped process is alive") {
  forked_child child{sleep_for_ever};
  const auto start = process_start_time(child.pid()).value();
  child.signal(SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  CHECK(is_alive(child.pid(), start));
}

TEST_CASE("a process whose main thread ended while another goes on is alive") {
  if (!threads_after_fork) {
    MESSAGE("left out: the thread sanitizer does not allow threads after fork()");
    return;
  }
  forked_child child{[] {
    std::thread{[] { sleep_for_ever(); }}.detach();
    ::syscall(SYS_exit, 0);  // this thread only, and without unwinding the stack
    return 0;
  }};
  const auto start = process_start_time(child.pid()).value();
  REQUIRE(soon([&] { return detail::read_process_stat(child.pid()).state == 'Z'; }));
  CHECK(is_alive(child.pid(), start));
  process_watch watch{child.pid(), start};
  CHECK_FALSE(watch.exited());
}

TEST_CASE("process_watch tells the end of a process, also through a poller") {
  forked_child child{sleep_for_ever};
  process_watch watch{child.pid(), process_start_time(child.pid()).value()};
  CHECK(watch.pid() == child.pid());
  CHECK_FALSE(watch.exited());
  poller p;
  if (watch.native() >= 0) p.add(watch.native(), interest::read, 1);
  child.signal(SIGKILL);
  if (watch.native() >= 0) {
    CHECK(soon([&] { return !p.wait(1s).empty(); }));
  }
  CHECK(soon([&] { return watch.exited(); }));
  CHECK(watch.exited());
}

TEST_CASE("process_watch is not fooled by a number that was used again") {
  process_watch watch{::getpid(), process_start_time(::getpid()).value() + 1};
  CHECK(watch.exited());
}

TEST_CASE("usable_cpus follows the affinity mask") {
  CHECK(usable_cpus() >= 1);
  const tutti_test::on_one_cpu here;
  CHECK(usable_cpus() == 1);
}

TEST_CASE("processes of one user on one machine share a memory domain; another ipc namespace is another domain") {
  const std::string mine = memory_domain();
  CHECK_FALSE(hostname().empty());
  CHECK(boot_id().size() >= 8);
  forked_child same{[&] { return memory_domain() == mine ? 0 : 1; }};
  CHECK(same.wait() == 0);
  forked_child other{[&] {
    if (::unshare(CLONE_NEWIPC) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWIPC) != 0) return 77;
    return memory_domain() != mine ? 0 : 1;
  }};
  const int code = other.wait();
  if (code == 77) {
    MESSAGE("left out: unshare(CLONE_NEWIPC) is not permitted here");
  } else {
    CHECK(code == 0);
  }
}
