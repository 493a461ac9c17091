#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/sharded_parameters.hpp>

#include "support/failure_of.hpp"
#include "train/sharded/sharded_units.hpp"

using namespace sharded_units;

TEST_CASE("sharded_parameters: an exception in one backward pass ends the others' with the abort") {
  std::vector<tutti::errc> seen(3);
  CHECK_THROWS_WITH(tutti::run_threads(3,
                                       [&](world_t& world) {
                                         const counts units{4, 4};
                                         auto p = shard_parameters<float>(world, units, sgd{});
                                         try {
                                           if (world.rank() == 1) {
                                             p.begin();
                                             (void)tutti::sync_wait(world, p.gather(0));
                                             throw std::runtime_error("backward");
                                           }
                                           tutti::sync_wait(world, pass<float>(p, units, world.rank(), 1, 1));
                                         } catch (const tutti::error& e) {
                                           seen[static_cast<std::size_t>(world.rank())] = e.kind();
                                           throw;
                                         }
                                       }),
                    "backward");
  CHECK((seen[0] == tutti::errc::aborted && seen[2] == tutti::errc::aborted));
}

TEST_CASE("sharded_parameters: an exception between average() and step() ends the others' in the next pass") {
  std::vector<tutti::errc> seen(3);
  const auto train = [&](world_t& world) {
    const counts units{4, 4};
    try {
      auto p = shard_parameters<float>(world, units, sgd{});
      for (int round = 0; round < 2; ++round) {
        p.begin();
        for (std::size_t u = 0; u < 2; ++u) {
          (void)p.gradients(u);
          tutti::sync_wait(world, p.scatter(u));
        }
        (void)tutti::sync_wait(world, p.average());
        if (world.rank() == 1) throw std::runtime_error("clipping");
        (void)tutti::sync_wait(world, p.step());
      }
    } catch (const tutti::error& e) {
      seen[static_cast<std::size_t>(world.rank())] = e.kind();
    } catch (const std::runtime_error&) {
    }
    world.barrier().wait();  // rank 1 lives on
  };
  CHECK_THROWS_AS(tutti::run_threads(3, train), tutti::error);
  CHECK((seen[0] == tutti::errc::aborted && seen[2] == tutti::errc::aborted));
}

TEST_CASE("sharded_parameters: a rank that catches one there and goes on ends all in the next average()") {
  std::latch ended(3);
  tutti::run_threads(3, [&](world_t& world) {
    auto p = shard_parameters<float>(world, counts{4}, sgd{});
    tutti_test::failure f;
    for (int batch = 0; batch < 2 && f.kind == tutti::errc::ok; ++batch) try {
        f = tutti_test::failure_of([&] {
          p.begin();
          (void)tutti::sync_wait(world, p.gather(0));
          p.release(0);
          (void)p.gradients(0);
          tutti::sync_wait(world, p.scatter(0));
          (void)tutti::sync_wait(world, p.average());
          if (batch == 0 && world.rank() == 1) throw std::bad_alloc();
          (void)tutti::sync_wait(world, p.step());
        });
      } catch (const std::bad_alloc&) {  // the next batch may be smaller
      }
    expect(f.kind == tutti::errc::mismatch && f.mentions("sharded_parameters: rank 1 left the last pass"), f.text);
    expect(p.steps() == (world.rank() == 1 ? 0 : 1), "stepped");
    ended.arrive_and_wait();
  });
}

TEST_CASE("sharded_parameters: a pass that one rank left without its step is one of the order that all follow, too") {
  for (const int kind : {0, 1, 2, 3}) {
    const bool releases = kind % 2 != 0, told = kind / 2 != 0;
    std::latch ended(3);
    tutti::run_threads(3, [&](world_t& world) {
      auto p = shard_parameters<float>(world, counts{6, 6, 9}, sgd{.rate = 0});
      const auto load = [&] {
        for (std::size_t u = 0; u < 3; ++u)
          p.assign(u, std::vector<float>(u == 2 ? 9U : 6U, static_cast<float>(u + 1)));
      };
      const auto pass = [&](bool steps) {
        p.begin();
        for (const std::size_t u : {std::size_t{2}, std::size_t{0}, std::size_t{1}}) {  // not as they are numbered
          for (const float x : tutti::sync_wait(world, p.gather(u)))
            expect(x == static_cast<float>(u + 1), "another's");
          if (releases) p.release(u);
          (void)p.gradients(u);
          tutti::sync_wait(world, p.scatter(u));
        }
        const auto f = tutti_test::failure_of([&] { (void)tutti::sync_wait(world, p.average()); });
        if (f.kind == tutti::errc::ok && steps) (void)tutti::sync_wait(world, p.step());
        return f.kind;
      };
      load();
      expect(pass(world.rank() != 1) == tutti::errc::ok, "left by one");
      if (told) expect(pass(false) == tutti::errc::mismatch, "told");
      (void)p.shards();
      load();
      p.resume(0);
      for (const bool steps : {false, true, true}) expect(pass(steps) == tutti::errc::ok, "resumed");
      ended.arrive_and_wait();
    });
  }
}

TEST_CASE("sharded_parameters: what does not fit is refused before anything is sent") {
  tutti::run_threads(2, [](world_t& world) {
    auto p = shard_parameters<float>(world, counts{2, 3}, sgd{});
    const std::vector<float> four(4);
    const auto wait = [&](auto task) { (void)tutti::sync_wait(world, std::move(task)); };
    CHECK_THROWS_AS(p.assign(0, four), tutti::usage_error);
    CHECK_THROWS_AS(p.assign(2, four), tutti::usage_error);
    CHECK_THROWS_AS(wait(p.gather(2)), tutti::usage_error);
    CHECK_THROWS_AS((void)p.gradients(0), tutti::usage_error);
    CHECK_THROWS_AS(wait(p.scatter(0)), tutti::usage_error);
    CHECK_THROWS_AS(wait(p.step()), tutti::usage_error);
    CHECK_THROWS_AS(p.begin(-1), tutti::usage_error);
    p.begin();
    CHECK_THROWS_AS((void)p.shards(), tutti::usage_error);
    CHECK_THROWS_AS(wait(p.scatter(1)), tutti::usage_error);
    (void)p.gradients(1);
    wait(p.scatter(1));
    CHECK_THROWS_WITH_AS(wait(p.step()),
                         "sharded_parameters: average() of unit 0: its gradients were not scattered in this pass",
                         tutti::usage_error);
    p.gradients(0);
    wait(p.scatter(0));
    p.gradients(1);  // of another micro-batch
    CHECK_THROWS_AS(wait(p.step()), tutti::usage_error);
    wait(p.scatter(1));
    wait(p.step());
    CHECK_THROWS_AS(wait(p.average()), tutti::usage_error);
  });
}

TEST_CASE("sharded_parameters: average() again divides no more") {
  tutti::run_threads(2, [](world_t& world) {
    auto p = shard_parameters<float>(world, counts{4}, sgd{.rate = 1});
    p.begin();
    std::ranges::fill(p.gradients(0), 4.0f);
    tutti::sync_wait(world, p.scatter(0));
    for (int i = 0; i < 2; ++i) (void)tutti::sync_wait(world, p.average());
    (void)tutti::sync_wait(world, p.step());
    expect(tutti::sync_wait(world, p.gather(0))[0] == -4, "divided twice");
  });
}

TEST_CASE("sharded_parameters: a rank that leaves a pass and begins another ends all, and never mixes two units") {
  std::vector<std::string> seen(2);
  const auto train = [&](world_t& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    auto p = shard_parameters<float>(world, counts(4, 6), sgd{});
    for (std::size_t u = 0; u < 4; ++u) p.assign(u, std::vector<float>(6, static_cast<float>(u)));
    for (int batch = 0; batch < 3; ++batch) try {
        p.begin();
        for (std::size_t u = 0; u < 4; ++u) {
          const auto w = tutti::sync_wait(world, p.gather(u));
          if (w[0] != w[5]) throw std::logic_error("of two units");
          if (batch == 1 && u == 1 && r == 1) throw std::bad_alloc();
          p.release(u);
        }
        for (std::size_t u = 4; u-- > 0;) {
          p.gradients(u);
          tutti::sync_wait(world, p.scatter(u));
        }
        (void)tutti::sync_wait(world, p.step());
      } catch (const std::bad_alloc&) {  // the next batch may be smaller
      } catch (const std::exception& e) {
        seen[r] = e.what();
        throw;
      }
  };
  CHECK_THROWS_AS(tutti::run_threads(2, train), tutti::usage_error);
  CHECK(!seen[0].empty());
  CHECK(seen[1].find("calls skip()") != std::string::npos);
}

TEST_CASE("sharded_parameters: ranks that differ, or one without memory, are told when they make it") {
  std::vector<std::string> seen(3);
  const auto make = [&](const counts& others, const counts& odd) {
    tutti::run_threads(3, [&](world_t& world) {
      try {
        (void)shard_parameters<float>(world, world.rank() == 1 ? odd : others, sgd{});
      } catch (const std::exception& e) {
        seen[static_cast<std::size_t>(world.rank())] = e.what();
      }
    });
  };
  make({8, 3}, {8, 4});
  for (const std::string& s : seen)
    CHECK_MESSAGE(s.find("parameter 1 is 4 x float32 on rank 1 and 3 x float32 on rank 0") != std::string::npos, s);
  make({8}, {std::size_t{1} << 63});
  for (const std::size_t r : {0U, 2U})
    CHECK_MESSAGE(seen[r].find("rank 1 could not begin") != std::string::npos, seen[r]);
  CHECK(seen[1].find("could not begin") == std::string::npos);
}
