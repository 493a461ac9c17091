#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/rounds.hpp"
#include "support/grid.hpp"

namespace {
using tutti::errc;
using tutti::grad::reducer;
using world_t = tutti::communicator<tutti::sim>;

struct setting {
  rounds::round round;
  tutti::sim_options how;
};

/// A world, what it reduces, and a schedule, all from one seed.
setting random_setting(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  setting s;
  s.round = rounds::random_round(random, 1 + static_cast<int>(seed % 5));
  s.how.seed = seed;
  s.how.memory = seed % 2 ? tutti::sim_memory::shared : tutti::sim_memory::separate;
  return s;
}
}  // namespace

TEST_CASE("reducer: on hundreds of schedules every pass is the exact mean, with equal bits on all ranks") {
  tutti::for_seeds(1, tutti_test::slow ? 80 : 400, [](std::uint64_t seed) {
    const setting s = random_setting(seed);
    std::vector<rounds::image> all(static_cast<std::size_t>(s.round.size));
    tutti::run_sim(s.round.size, s.how, [&](world_t& world) {
      reducer reducer{world, s.round.shapes, s.round.options};
      for (int pass = 0; pass < 2; ++pass)
        all[static_cast<std::size_t>(world.rank())] = rounds::run(s.round, world, reducer);
    });
    if (const auto wrong = rounds::complaint(s.round, all[0]); !wrong.empty()) throw std::runtime_error(wrong);
    for (const auto& other : all)
      if (other != all[0]) throw std::runtime_error("ranks disagree");
  });
}

TEST_CASE("reducer: on many schedules gradients that lie elsewhere give the bits of those in the arena") {
  tutti::for_seeds(1, tutti_test::slow ? 20 : 80, [](std::uint64_t seed) {
    setting s = random_setting(seed);
    std::mt19937_64 random(seed);
    s.round = rounds::random_round(random, s.round.size, seed % 4 == 0 ? 1 : 20);
    s.round.options.in_flight = seed % 3;
    const tutti::call_options how{.order = seed % 5 < 3 ? tutti::reduction_order::any : tutti::reduction_order::rank};
    tutti::run_sim(s.round.size, s.how, [&](world_t& world) {
      reducer reducer{world, s.round.shapes, s.round.options, tutti::grad::sum_hook{how}};
      const rounds::image expected = rounds::run(s.round, world, reducer);
      for (const auto lie : {rounds::lie::elsewhere, rounds::lie::either, rounds::lie::in_the_arena})
        if (rounds::run(s.round, world, reducer, lie) != expected) throw std::runtime_error("other bits");
    });
  });
}

TEST_CASE("reducer: on many schedules an exception in one backward pass ends all of them with the abort") {
  tutti::for_seeds(1, tutti_test::slow ? 40 : 100, [](std::uint64_t seed) {
    setting s = random_setting(seed * 5 + 1 + seed % 4);  // 2 to 5 ranks
    std::mt19937_64 random(seed);
    const int faulty = static_cast<int>(random() % static_cast<std::uint64_t>(s.round.size));
    const std::size_t ready_tracker = random() % (s.round.shapes.size() + 1);
    std::vector<errc> seen(static_cast<std::size_t>(s.round.size));
    tutti::run_sim(s.round.size, s.how, [&](world_t& world) {
      try {
        reducer reducer{world, s.round.shapes, s.round.options};
        (void)rounds::run(s.round, world, reducer);
        if (world.rank() == faulty) {
          auto pass = reducer.begin();
          for (std::size_t i = 0; i < ready_tracker; ++i) pass.ready(i);
          throw std::runtime_error("backward");
        }
        (void)rounds::run(s.round, world, reducer);
      } catch (const tutti::error& e) {
        seen[static_cast<std::size_t>(world.rank())] = e.kind();
      } catch (const std::runtime_error&) {
      }
    });
    // Where the faulty rank had marked everything, the others may have finished before it threw.
    const bool late = ready_tracker == s.round.shapes.size();
    for (int r = 0; r < s.round.size; ++r) {
      const errc e = seen[static_cast<std::size_t>(r)];
      if (r == faulty ? e != errc::ok : e != errc::aborted && !(late && e == errc::ok))
        throw std::runtime_error("rank " + std::to_string(r) + " did not see the abort");
    }
  });
}

TEST_CASE("reducer: on 100 schedules a rank that dies in the midst of passes is a loss to all others, not a hang") {
  int losses = 0;
  tutti::for_seeds(1, 100, [&](std::uint64_t seed) {
    setting s = random_setting(seed * 5 + 1 + seed % 4);
    std::mt19937_64 random(seed);
    s.how.lose_rank = static_cast<int>(random() % static_cast<std::uint64_t>(s.round.size));
    s.how.lose_at_step = 1 + random() % 60;
    tutti::sim_record record;
    s.how.record = &record;
    int survived = 0;
    try {
      tutti::run_sim(s.round.size, s.how, [&](world_t& world) {
        reducer reducer{world, s.round.shapes, s.round.options};
        for (int pass = 0; pass < 5; ++pass) (void)rounds::run(s.round, world, reducer);
        ++survived;
      });
    } catch (const tutti::error& e) {
      if (e.kind() != errc::peer_lost) throw;
      ++losses;
      return;
    }
    if (survived < s.round.size - (record.lost_at != 0 ? 1 : 0)) throw std::runtime_error("a rank is missing");
  });
  CHECK(losses > 20);
}
