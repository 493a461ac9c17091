#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

#include <async/stage.hpp>

namespace {

using stage::started;

/// An executor of the user's: it only keeps what was posted.
struct shelf {
  std::vector<tutti::waiter*> posted;
  void post(tutti::waiter& w) noexcept { posted.push_back(&w); }
};
static_assert(tutti::executor<shelf> && tutti::executor<tutti::engine> && !tutti::executor<std::string>);

template <class E>
started hop(E& to, int& steps) {
  ++steps;
  co_await tutti::resume_on(to);
  ++steps;
}

TEST_CASE("resume_on: the coroutine goes on where the executor runs it") {
  shelf s;
  int steps = 0;
  const started r = hop(s, steps);
  CHECK(steps == 1);
  REQUIRE(s.posted.size() == 1);
  s.posted.front()->handle.resume();
  CHECK(steps == 2);
  CHECK(r.done());
}

TEST_CASE("resume_on: to and fro between two engines") {
  tutti::engine here, there;
  const tutti::progress_thread elsewhere{there};
  // gettid, as a compiler may take what pthread_self says for constant within a coroutine.
  const auto travel = [](tutti::engine& a, tutti::engine& b) -> tutti::task<std::pair<pid_t, pid_t>> {
    std::pair<pid_t, pid_t> seen;
    for (int i = 0; i < 100; ++i) {
      co_await tutti::resume_on(b);
      seen.first = ::gettid();
      co_await tutti::resume_on(a);
      seen.second = ::gettid();
    }
    co_return seen;
  };
  const auto [away, home] = tutti::sync_wait(here, travel(here, there));
  CHECK(away != home);
  CHECK(home == ::gettid());
}

TEST_CASE("resume_on: a coroutine that is destroyed in the queue of an engine is not resumed") {
  tutti::engine e;
  int steps = 0, others = 0;
  const started before = hop(e, others);
  {
    const started r = hop(e, steps);
    CHECK(steps == 1);
  }
  const started after = hop(e, others);
  e.poll();
  CHECK(steps == 1);
  CHECK(others == 4);
}

}  // namespace
