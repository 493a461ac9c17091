// Ranks that main() spawns, in the situation that the word `case` names.
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tutti/bootstrap/openssl.hpp>
#include <tutti/bootstrap/spawn.hpp>

#include "process/programs/options.hpp"

namespace {

using world_type = tutti::communicator<>;
using tutti_test::words;

bool is_rank() { return std::getenv("TUTTI_SPAWN") != nullptr; }

void say(const std::string& line) {
  const std::string whole = line + "\n";
  (void)!::write(STDOUT_FILENO, whole.data(), whole.size());
}

void check_sum(world_type& world) {
  if (world.all_reduce(1 << world.rank()).wait() != (1 << world.size()) - 1) throw std::logic_error("a wrong sum");
}

// Says what left the call of spawn(), with everything that its type tells.
template <class Call>
void caught(Call call) {
  try {
    call();
    say("spawn returned");
  } catch (const tutti::spawn_error& e) {
    say("spawn_error rank " + std::to_string(e.rank()) + " peer " + std::to_string(e.peer()) + " signal " +
        std::to_string(e.signal()) + " code " + std::to_string(e.exit_code()) + ": " + e.what());
  } catch (const tutti::error& e) {
    say("error " + std::to_string(static_cast<int>(e.kind())) + " rank " + std::to_string(e.rank()) + " peer " +
        std::to_string(e.peer()) + ": " + e.what());
  } catch (const tutti::usage_error& e) {
    say(std::string{"usage_error: "} + e.what());
  }
}

// Things that fork() of this thread would leave in an impossible state: a lock that another thread holds, and an
// allocator that other threads are inside of.
class busy_threads {
 public:
  explicit busy_threads(std::mutex& mutex) {
    all_.emplace_back([&mutex, this](const std::stop_token& stop) {
      const std::scoped_lock guard(mutex);
      held_ = true;
      while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    });
    for (int i = 0; i < 2; ++i)
      all_.emplace_back([](const std::stop_token& stop) {
        for (std::size_t n = 1; !stop.stop_requested(); n = n % 100000 + 1) std::vector<char>(n).swap(kept());
      });
    while (!held_) std::this_thread::yield();
  }

 private:
  static std::vector<char>& kept() {
    thread_local std::vector<char> some;
    return some;
  }
  std::atomic<bool> held_ = false;
  std::vector<std::jthread> all_;
};

/// Lets this process start `more` children and no further one, at least if nothing else of its user comes or goes.
void allow_processes(int more) {
  if (::geteuid() == 0 && ::setuid(64321) != 0) say("setuid() failed");  // the limit does not hold for root
  ::rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  for (limit.rlim_cur = 1; limit.rlim_cur < limit.rlim_max; ++limit.rlim_cur) {
    ::setrlimit(RLIMIT_NPROC, &limit);
    const ::pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    if (child < 0) continue;
    ::waitpid(child, nullptr, 0);
    limit.rlim_cur += static_cast<::rlim_t>(more) - 1;
    ::setrlimit(RLIMIT_NPROC, &limit);
    return;
  }
}

int run(const words& w) {
  const std::string which = w.text("case");
  const int n = w.number("n", 4), bad = w.number("bad", 2);
  tutti::spawn_options how;
  how.init = tutti_test::options_from(w);
  how.settle = std::chrono::milliseconds{w.number("settle", 1000)};
  how.grace = std::chrono::milliseconds{w.number("grace", 5000)};
  const auto with = [&](auto f) { caught([&] { tutti::spawn(n, f, how); }); };

  if (which == "fine") {
    const std::string captured = "made before";
    with([&](world_type& world) {
      check_sum(world);
      say("rank " + std::to_string(world.rank()) + " of " + std::to_string(world.size()) + " local " +
          std::to_string(world.local_rank()) + " of " + std::to_string(world.local_size()) + ", " + captured);
    });
  } else if (which == "threads") {
    std::mutex mutex;
    std::optional<busy_threads> threads;
    if (!is_rank()) threads.emplace(mutex);
    for (int round = 0; round < 3; ++round)
      with([&](world_type& world) {
        const std::scoped_lock guard(mutex);
        check_sum(world);
        say("round " + std::to_string(round) + " rank " + std::to_string(world.rank()));
      });
  } else if (which == "own exception" || which == "exception" || which == "odd exception" || which == "misuse") {
    with([&](world_type& world) {
      check_sum(world);
      if (world.rank() == bad && which == "exception") throw std::runtime_error("no data for this rank");
      if (world.rank() == bad && which == "odd exception") throw 5;
      if (world.rank() == bad && which == "misuse") world.broadcast(1, 99).wait();
      if (world.rank() == bad && which == "own exception") {
        world.timeout(std::chrono::milliseconds{50});
        std::vector<int> never(1);
        world.recv(never, 0, 5).wait();
      }
      check_sum(world);
    });
  } else if (which == "signal" || which == "exit" || which == "clean exit") {
    with([&](world_type& world) {
      check_sum(world);
      if (world.rank() == bad && which == "signal") ::raise(SIGSEGV);
      if (world.rank() == bad) std::_Exit(which == "exit" ? 3 : 0);
      check_sum(world);
    });
  } else if (which == "after") {  // a destructor of a static object
    static struct fragile {
      bool armed = false;
      ~fragile() {
        if (armed) ::raise(SIGABRT);
      }
    } object;
    with([&](world_type& world) { object.armed = world.rank() == bad; });
  } else if (which == "stubborn") {
    with([&](world_type& world) {
      ::signal(SIGTERM, SIG_IGN);
      check_sum(world);
      if (world.rank() == bad) throw std::runtime_error("first");
      for (;;) ::pause();
    });
  } else if (which == "held") {  // the debugger of rank 0 never asks how that one has ended
    with([&](world_type& world) {
      const int pid = world.all_reduce(world.rank() == 0 ? static_cast<int>(::getpid()) : 0).wait();
      if (world.rank() != 1) ::pause();
      if (::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) say("ptrace is not allowed");
      ::kill(pid, SIGKILL);
      std::atexit([] { ::pause(); });
      throw std::runtime_error("holds rank 0");
    });
  } else if (which == "sleep") {
    with([&](world_type& world) {
      check_sum(world);
      if (world.rank() == 0) say("all are asleep");
      for (;;) ::pause();
    });
  } else if (which == "ends") {
    if (is_rank()) return 7;
    with([](world_type&) {});
  } else if (which == "dies") {
    if (is_rank()) throw std::runtime_error("main() takes another way");
    with([](world_type&) {});
  } else if (which == "elsewhere") {
    if (is_rank()) tutti::spawn(n, [](world_type&) {});
    with([](world_type&) {});
  } else if (which == "late") {
    if (is_rank()) ::pause();
    with([](world_type&) {});
  } else if (which == "again") {
    with([&](world_type& world) {
      if (world.rank() == bad) throw std::runtime_error("the first call fails");
    });
    with([&](world_type& world) { check_sum(world); });
  } else if (which == "nested") {
    with([&](world_type&) { tutti::spawn(2, [](world_type&) {}); });
  } else if (which == "daemon") {
    if (is_rank() && ::fork() != 0) return 0;
    with([](world_type&) {});
  } else if (which == "no children") {
    ::signal(SIGCHLD, SIG_IGN);
    with([](world_type& world) { check_sum(world); });
  } else if (which == "too few processes") {
    allow_processes(3);
    with([](world_type&) {});
    say(::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD ? "no rank is left" : "a rank is left");
  } else if (which == "stdin") {
    with([](world_type& world) {
      std::array<char, 100> line{};
      const auto got = ::read(STDIN_FILENO, line.data(), line.size());
      say("rank " + std::to_string(world.rank()) + " reads " +
          std::string(line.data(), got > 0 ? std::size_t(got) : 0));
    });
  } else if (which == "stop") {
    std::stop_source stop;
    how.init.stop = stop.get_token();
    std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{300});
      stop.request_stop();
    });
    if (is_rank() && w.number("arrive", 1) == 0) ::pause();
    with([](world_type&) {
      for (;;) ::pause();
    });
  } else if (which == "other command line") {
    how.arguments = {"case=other command line", "n=" + std::to_string(n), "said=yes"};
    with([&](world_type& world) {
      check_sum(world);
      if (world.rank() == 0) say("said " + w.text("said"));
    });
  } else if (which == "options") {
    for (int i = 0; i < 4; ++i) {
      tutti::spawn_options wrong = how;
      if (i == 0) wrong.init.rank = 1;
      if (i == 1) wrong.init.rendezvous = "unix:@a";
      if (i == 2) wrong.grace = std::chrono::seconds{-1};
      caught([&] { tutti::spawn(i == 3 ? 0 : n, [](world_type&) {}, wrong); });
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(words{argc, argv}); } catch (const std::exception& e) {
  say(std::string{"main() threw: "} + e.what());
  return 1;
}
