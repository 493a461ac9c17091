#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/async/progress_thread.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <async/stage.hpp>
#include <communicator/ranks.hpp>
#include <support/grid.hpp>

namespace {

using namespace std::chrono_literals;
using ranks::expect;
using ranks::world;
using stage::started;
using tutti::errc;
using tutti::nothrow;
using tutti::task;

TEST_CASE("coroutine: nothing resumes inside a call that issues") {
  tutti::run_threads(3, [](auto& w) {
    bool inside = false, wrong = false;
    int steps = 0;
    const auto follow = [](tutti::op o, const bool& in, bool& bad, int& n) -> started {
      co_await std::move(o);
      if (in) bad = true;
      ++n;
    };
    std::vector<started> runs;
    std::vector<std::vector<int>> data(200, std::vector<int>(100, 1));
    for (auto& d : data) {
      inside = true;
      auto pending = w.all_reduce(d, tutti::sum,
                                  {.via = runs.size() % 2 == 0 ? tutti::algorithm::automatic : tutti::algorithm::ring});
      inside = false;
      runs.push_back(follow(std::move(pending), inside, wrong, steps));
    }
    w.engine().run_until([&] { return steps == 200; });
    expect(!wrong, "a coroutine ran inside of all_reduce");
    w.barrier().wait();
  });
}

TEST_CASE("coroutine: one that is resumed may wait for others, and may issue more") {
  tutti::run_threads(2, [](auto& w) {
    const auto nested = [](world& on, int depth, auto self) -> task<int> {
      co_await on.barrier();
      const int blocking = on.all_reduce(1).wait();
      if (depth == 0) co_return blocking;
      co_return blocking + tutti::sync_wait(on, self(on, depth - 1, self));
    };
    expect(tutti::sync_wait(w, nested(w, 10, nested)) == 22, "another sum");
  });
}

TEST_CASE("coroutine: exceptions go through tasks and when_all, and the others have ended then") {
  tutti::run_threads(2, [](auto& w) {
    const auto fails = [](world& on) -> task<> {
      co_await on.barrier();
      throw std::domain_error("from a task");
    };
    std::vector<int> v(50000, 1);
    const auto both = [](world& on, std::vector<int>& data, auto make) -> task<> {
      auto sum = on.all_reduce(data);
      co_await tutti::when_all(make(on), std::move(sum));
    };
    expect(ranks::words_of<std::domain_error>([&] { tutti::sync_wait(w, both(w, v, fails)); }) == "from a task",
           "another exception");
    expect(v == std::vector<int>(50000, 2), "when_all ended before the sum did");
    w.barrier().wait();
  });
}

TEST_CASE("coroutine: an abort reaches every coroutine") {
  tutti::run_threads(2, [](auto& w) {
    int failed = 0;
    const auto body = [](world& on, int& n, std::uint32_t tag) -> task<> {
      std::vector<int> v(10);
      try {
        co_await on.recv(v, 1 - on.rank(), tag);
      } catch (const tutti::error& e) {
        if (e.kind() == errc::aborted) ++n;
      }
    };
    std::vector<task<>> tasks;
    for (std::uint32_t i = 0; i < 20; ++i) tasks.push_back(body(w, failed, i));
    std::thread other;
    if (w.rank() == 0) other = std::thread{[&] { w.abort(); }};
    tutti::sync_wait(w, tutti::when_all(std::move(tasks)));
    if (other.joinable()) other.join();
    expect(failed == 20, std::to_string(failed) + " of 20 were aborted");
  });
}

TEST_CASE("coroutine: one that is destroyed while it is suspended is not resumed, and its buffers are free") {
  tutti::run_threads(2, [](auto& w) {
    for (int round = 0; round < 100; ++round) {
      auto data = std::make_unique<std::vector<int>>(static_cast<std::size_t>(round) * 300, 1);
      bool resumed = false;
      const auto body = [](tutti::op o, bool& flag) -> started {
        co_await std::move(o);
        flag = true;
      };
      {
        const started run = body(w.all_reduce(*data), resumed);
        if (round % 2 == 0) w.engine().poll();
        if (!resumed) expect(!run.done(), "done without having run");
      }
      const bool before = resumed;
      data.reset();
      w.barrier().wait();
      expect(resumed == before, "a coroutine ran after its end");
    }
  });
}

TEST_CASE("coroutine: ten thousand operations at once") {
  tutti::run_threads(2, [](auto& w) {
    constexpr std::size_t count = 10000;
    std::vector<int> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i) + w.rank();
    const auto one = [](world& on, int& x, std::size_t i) -> task<> {
      if (i % 4 == 3)
        co_await on.barrier();
      else
        co_await on.all_reduce(
            std::span{&x, 1}, tutti::sum,
            {.via = i % 4 == 0 ? tutti::algorithm::recursive_doubling : tutti::algorithm::automatic});
    };
    std::vector<task<>> tasks;
    for (std::size_t i = 0; i < count; ++i) tasks.push_back(one(w, values[i], i));
    tutti::sync_wait(w, tutti::when_all(std::move(tasks)));
    for (std::size_t i = 0; i < count; ++i)
      expect(values[i] == (i % 4 == 3 ? static_cast<int>(i) + w.rank() : 2 * static_cast<int>(i) + 1), "operation", i);
  });
}

TEST_CASE("coroutine: a progress_thread drives while the issuing thread does something else") {
  for (const int size : {2, 3})
    tutti::run_threads(size, [](auto& w) {
      const tutti::progress_thread driver{w.engine()};
      std::vector<float> v(300000, 1);
      for (int i = 0; i < 20; ++i) {
        auto pending =
            w.all_reduce(v, tutti::max, {.via = i % 2 == 0 ? tutti::algorithm::automatic : tutti::algorithm::ring});
        while (!pending.done()) std::this_thread::yield();  // nobody here drives
        pending.wait();
      }
      for (int i = 0; i < 500; ++i) w.barrier().wait();
      expect(w.all_reduce(1).wait() == w.size(), "another sum");
    });
}

TEST_CASE("coroutine: two threads of a rank wait for different operations of one engine") {
  tutti::run_threads(2, [](auto& w) {
    for (int round = 0; round < 100; ++round) {
      std::vector<int> a(1000, 1), b(1000, 1);
      auto first = w.all_reduce(a);
      auto second = w.all_reduce(b, tutti::sum, {.via = tutti::algorithm::ring});
      std::thread other{[&] { (round % 2 == 0 ? first : second).wait(); }};
      (round % 2 == 0 ? second : first).wait();
      other.join();
      expect(a.back() == 2 && b.back() == 2, "another sum");
    }
  });
}

TEST_CASE("coroutine: a rank's coroutine may hop to another engine and come back") {
  tutti::run_threads(2, [](auto& w) {
    tutti::engine elsewhere;
    const tutti::progress_thread driver{elsewhere};
    const auto travel = [](world& on, tutti::engine& away) -> task<int> {
      int sum = 0;
      for (int i = 0; i < 50; ++i) {
        sum += co_await on.all_reduce(1);
        co_await tutti::resume_on(away);
        ++sum;
        co_await tutti::resume_on(on.engine());
      }
      co_return sum;
    };
    expect(tutti::sync_wait(w, travel(w, elsewhere)) == 150, "another sum");
  });
}

TEST_CASE("coroutine: a million operations that are complete at once need no stack") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  stage::stack_span stack;
  const auto loop = [](world& on, stage::stack_span& s, bool broken) -> task<> {
    for (int i = 0; i < (tutti_test::slow ? 50000 : 1000000); ++i) {
      if (broken)
        (void)co_await nothrow(on.all_reduce(1));
      else
        (void)co_await on.all_reduce(1);
      s.pass();
    }
  };
  tutti::sync_wait(alone, loop(alone, stack, false));
  alone.abort();
  tutti::sync_wait(alone, loop(alone, stack, true));
  CHECK(stack.bytes() < 4096);
}

}  // namespace
