#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/bootstrap/sim.hpp>

#include <transport/sim_program.hpp>

namespace {

using namespace tutti;

/// A world of 2 to 6 ranks runs a random program and loses a rank on the way. Every survivor ends: with its results
/// where it had no need of that rank any more, else with an error that names it.
struct losses {
  std::uint64_t lost = 0, early = 0, completed = 0, failed = 0;

  void run(std::uint64_t seed, sim_loss how, sim_memory memory) {
    sim_random random(seed);
    const int size = 2 + static_cast<int>(random.below(5)), victim = static_cast<int>(random.below(6)) % size;
    sim_record record;
    std::vector<std::optional<status>> ends(static_cast<std::size_t>(size));
    run_sim(size,
            {.seed = seed,
             .memory = memory,
             .lose_rank = victim,
             .lose_at_step = 1 + random.below(random.one_of({30, 300, 1000})),
             .how = how,
             .record = &record},
            [&](communicator<sim>& world) {
              auto& end = ends[static_cast<std::size_t>(world.rank())];
              try {
                sim_program::play(world, seed, 8);
                end = status{};
              } catch (const error& e) {
                end = e.cause();
                if (std::string(e.what()).find("seed " + std::to_string(seed)) == std::string::npos)
                  throw std::runtime_error(std::string("no seed in: ") + e.what());
              }
            });
    ++(record.lost_at == 0 ? early : lost);
    const errc wanted = how == sim_loss::killed ? errc::peer_lost : errc::timed_out;
    for (int r = 0; r < size; ++r) {
      const auto& end = ends[static_cast<std::size_t>(r)];
      if (!end) throw std::runtime_error("rank " + std::to_string(r) + " has not ended");
      if (end->ok()) {
        ++completed;
        continue;
      }
      if (record.lost_at == 0) throw std::runtime_error("rank " + std::to_string(r) + " failed without a loss");
      if (r == victim) continue;  // it is gone: what it is told does not matter
      ++failed;
      if (end->code != wanted || end->peer != victim)
        throw std::runtime_error("rank " + std::to_string(r) + " blames rank " + std::to_string(end->peer) + " with " +
                                 category().message(static_cast<int>(end->code)) + ", not rank " +
                                 std::to_string(victim));
    }
  }
};

void lose_all(sim_loss how) {
  for (const sim_memory memory : {sim_memory::separate, sim_memory::shared}) {
    losses all;
    for_seeds(1, sim_program::seeds / 2, [&](std::uint64_t seed) { all.run(seed, how, memory); });
    // Most of the worlds did lose their rank in the middle.
    CHECK(all.lost > all.early);
    CHECK(all.failed > all.completed);
    CHECK(all.early > 0);
  }
}

TEST_CASE("sim: a killed rank is named by every survivor, on every schedule") { lose_all(sim_loss::killed); }

TEST_CASE("sim: a rank that goes silent is named by every survivor at once, on every schedule") {
  lose_all(sim_loss::silent);
}

TEST_CASE("sim: a rank that is lost takes its locals with it, and what it throws is nobody's") {
  for (const sim_loss how : {sim_loss::killed, sim_loss::silent}) {
    int unwound = 0;
    struct local {
      int* count;
      ~local() { ++*count; }
    };
    run_sim(3, {.lose_rank = 1, .lose_at_step = 20, .how = how}, [&](communicator<sim>& world) {
      const local mine{&unwound};
      std::vector<int> v(1000, 1);
      try {
        for (int i = 0; i < 100; ++i) world.all_reduce(v).wait();
      } catch (const error&) {
        if (world.rank() == 1) throw std::runtime_error("from beyond");
      }
    });
    CHECK(unwound == 3);
  }
}

TEST_CASE("sim: what a failed operation had is its user's again: no other rank stores into it") {
  constexpr int size = 4;
  constexpr std::size_t count = 20'000;  // more than is staged
  std::uint64_t failed = 0;
  for_seeds(1, sim_program::seeds, [&](std::uint64_t seed) {
    std::vector<std::vector<int>> buffers(size);
    sim_random random(seed);
    run_sim(size,
            {.seed = seed,
             .memory = sim_memory::shared,
             .lose_rank = 3,
             .lose_at_step = 1 + random.below(120),
             .how = seed % 2 == 0 ? sim_loss::killed : sim_loss::silent},
            [&](communicator<sim>& world) {
              auto& mine = buffers[static_cast<std::size_t>(world.rank())];
              mine.assign(count, 1);
              try {
                for (int i = 0; i < 6; ++i) world.all_reduce(mine).wait();
              } catch (const error&) {
                mine.assign(count, -1);
                ++failed;
              }
            });
    for (const auto& b : buffers)
      if (b.front() == -1 && b != std::vector<int>(count, -1)) throw std::runtime_error("a buffer was overwritten");
  });
  CHECK(failed > sim_program::seeds);
}

TEST_CASE("sim: survivors that do not need the lost rank go on") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    sim_record record;
    int done = 0;
    run_sim(4, {.seed = seed, .lose_rank = 3, .lose_at_step = 1, .how = sim_loss::silent, .record = &record},
            [&](communicator<sim>& world) {
              if (world.rank() == 3) return (void)world.barrier().wait();
              std::vector<int> v(100, world.rank());
              const int right = (world.rank() + 1) % 3, left = (world.rank() + 2) % 3;
              auto sending = world.send(v, right);
              std::vector<int> got(100);
              world.recv(got, left).wait();
              sending.wait();
              done += got[99] == left;
            });
    CHECK(done == 3);
    CHECK(record.lost_at == 1);
  }
}

}  // namespace
