#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/bootstrap/sim.hpp>

#include <docs/testing.hpp>
#include <transport/sim_program.hpp>

namespace {

using namespace tutti;

sim_record record_of(std::uint64_t seed, sim_memory memory) {
  sim_record record;
  run_sim(4, {.seed = seed, .memory = memory, .record = &record},
          [](communicator<sim>& world) { sim_program::play(world, 11, 6); });
  return record;
}

TEST_CASE("run_sim: a seed replays, step for step, and another seed is another schedule") {
  for (const sim_memory memory : {sim_memory::separate, sim_memory::shared}) {
    std::set<std::uint64_t> traces;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const sim_record one = record_of(seed, memory), two = record_of(seed, memory);
      CHECK(one.seed == seed);
      CHECK(one.steps > 4);
      CHECK(one.steps == two.steps);
      CHECK(one.trace == two.trace);
      traces.insert(one.trace);
    }
    CHECK(traces.size() == 30);
  }
}

TEST_CASE("run_sim: a loss replays") {
  const auto lose = [] {
    sim_record record;
    std::string text;
    run_sim(3, {.seed = 5, .lose_rank = 1, .lose_at_step = 40, .how = sim_loss::silent, .record = &record},
            [&](communicator<sim>& world) {
              try {
                sim_program::play(world, 1, 50);
              } catch (const error& e) {
                if (world.rank() != 1) text += e.what();
              }
            });
    return std::pair{text, record.trace};
  };
  const auto one = lose();
  CHECK(one == lose());
  CHECK(one.first.find("waiting for rank 1 (simulated: seed 5, step ") != std::string::npos);
}

TEST_CASE("run_sim: ranks run unchanged code, and locals may be shared: it is one thread") {
  std::vector<int> sums;
  run_sim(4, {.seed = 7}, [&](communicator<sim>& world) {
    std::vector<float> v(100, static_cast<float>(world.rank()));
    world.all_reduce(v).wait();
    sums.push_back(static_cast<int>(v[99]));
  });
  CHECK(sums == std::vector<int>{6, 6, 6, 6});
  int alone = 0;
  run_sim(1, 0, [&](auto& world) { alone = world.all_reduce(5).wait(); });
  CHECK(alone == 5);
}

TEST_CASE("run_sim: the first exception by time is rethrown, of its own type; the others are aborted") {
  struct mine {
    int rank;
  };
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const int thrower = static_cast<int>(seed % 3);
    int aborted = 0, caught = -1;
    try {
      run_sim(3, seed, [&](communicator<sim>& world) {
        if (world.rank() == thrower) {
          world.barrier().wait();
          throw mine{thrower};
        }
        try {
          for (;;) world.barrier().wait();
        } catch (const error& e) {
          aborted += e.kind() == errc::aborted;
          throw;
        }
      });
    } catch (const mine& m) {
      caught = m.rank;
    }
    CHECK(caught == thrower);
    CHECK(aborted == 2);
  }
}

TEST_CASE("run_sim: waits inside of catch blocks and of destructors that run for an exception") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    int right = 0;
    run_sim(3, seed, [&](communicator<sim>& world) {
      struct meets {
        communicator<sim>& world;
        ~meets() { world.barrier().wait(); }
      };
      try {
        const meets at_the_end{world};
        std::vector<int> v(1000, 1);
        auto dropped = world.all_reduce(v);
        throw std::runtime_error("rank " + std::to_string(world.rank()));
      } catch (const std::runtime_error& e) {
        world.barrier().wait();
        right += e.what() == "rank " + std::to_string(world.rank()) && std::uncaught_exceptions() == 0;
        try {
          throw;
        } catch (const std::runtime_error& again) {
          right += again.what() == "rank " + std::to_string(world.rank());
        }
      }
    });
    CHECK(right == 6);
  }
}

TEST_CASE("run_sim: a hang of its own making ends with an error that tells how to replay it") {
  if (detail::address_sanitizer) return;  // what is on the stack of a rank that cannot end is never freed
  sim_record record;
  std::string text;
  try {
    run_sim(2, {.seed = 12, .record = &record}, [](communicator<sim>& world) {
      if (world.rank() == 0) world.engine().run_until([] { return false; });
    });
  } catch (const error& e) {
    text = e.what();
    CHECK(e.kind() == errc::timed_out);
  }
  CHECK(text.find("seed 12, step ") != std::string::npos);
  CHECK(record.seed == 12);
  CHECK(record.steps > 0);
}

TEST_CASE("run_sim: wrong arguments are found before anything runs") {
  const auto nothing = [](communicator<sim>&) {};
  CHECK_THROWS_AS(run_sim(0, 1, nothing), usage_error);
  CHECK_THROWS_AS(run_sim(-3, 1, nothing), usage_error);
  CHECK_THROWS_AS(run_sim(257, 1, nothing), usage_error);
  CHECK_THROWS_AS(run_sim(2, {.lose_rank = 2}, nothing), usage_error);
}

task<int> count_down(communicator<sim>& world) {
  int rounds = 0;
  while (co_await world.all_reduce(1) == world.size() && rounds < 10) ++rounds;
  co_return rounds;
}

TEST_CASE("run_sim: coroutines, worlds inside of a world, and many ranks") {
  int sum = 0;
  run_sim(3, 2, [&](communicator<sim>& world) {
    run_sim(2, static_cast<std::uint64_t>(world.rank()),
            [&](communicator<sim>& inner) { sum += sync_wait(inner, count_down(inner)); });
    world.barrier().wait();
  });
  CHECK(sum == 60);
  int met = 0;
  run_sim(64, 4, [&](communicator<sim>& world) { met += world.all_reduce(1).wait(); });
  CHECK(met == 64 * 64);
}

TEST_CASE("for_seeds: names the seed that failed, and keeps the error") {
  std::uint64_t calls = 0;
  for_seeds(10, 5, [&](std::uint64_t seed) { calls += seed; });
  CHECK(calls == 10 + 11 + 12 + 13 + 14);
  try {
    for_seeds(0, 100, [](std::uint64_t seed) {
      if (seed == 42) throw error{{errc::peer_lost, 0, 3, 0}, "gone"};
    });
    FAIL("did not throw");
  } catch (const error& e) {
    CHECK(std::string(e.what()) == "seed 42: gone");
    CHECK(e.kind() == errc::peer_lost);
    CHECK(e.peer() == 3);
    CHECK_THROWS_AS(std::rethrow_if_nested(e), error);
  }
  CHECK_THROWS_WITH_AS(for_seeds(3, 1, [](std::uint64_t) { throw std::logic_error("no"); }), "seed 3: no",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(for_seeds(3, 1, [](std::uint64_t) { throw 1; }), "seed 3: an exception", std::runtime_error);
}

TEST_CASE("run_sim: the examples of docs/testing.md") {
  docs_testing::in_many_orders();
  CHECK_THROWS_AS(docs_testing::with_a_loss([](communicator<sim>& world) {
                    for (int i = 0; i < 100; ++i) world.barrier().wait();
                  }),
                  error);
}

}  // namespace
