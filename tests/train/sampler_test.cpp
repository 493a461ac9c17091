#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/sampler.hpp>
#include <vector>

#include "train/golden/sampler.hpp"

namespace {
using tutti::train::leftover;
using tutti::train::sample_order;
using tutti::train::sampler;
using tutti::train::sampler_options;
using tutti::train::sampler_state;
using indices = std::vector<std::uint64_t>;

indices all_of(sampler& s) {
  const auto some = s.take(s.left());
  return {some.begin(), some.end()};
}

/// The samplers of all ranks.
std::vector<sampler> world_of(std::size_t samples, int ranks, sampler_options how) {
  std::vector<sampler> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(samples, r, ranks, how);
  return all;
}
void append(indices& to, std::span<const std::uint64_t> more) { to.insert(to.end(), more.begin(), more.end()); }

/// How often each sample was seen.
std::vector<int> counts(std::size_t samples, const indices& seen) {
  std::vector<int> n(samples);
  for (const auto i : seen) ++n.at(i);
  return n;
}
bool each(const std::vector<int>& n, int times) {
  return std::all_of(n.begin(), n.end(), [&](int x) { return x == times; });
}
}  // namespace

TEST_CASE("sampler: bit for bit torch's DistributedSampler, shuffled and not, padded and dropped") {
  for (const auto& d : golden::deals)
    for (int rank = 0; rank < d.ranks; ++rank) {
      CAPTURE(d.samples);
      CAPTURE(d.ranks);
      CAPTURE(rank);
      sampler s{d.samples,
                rank,
                d.ranks,
                {d.shuffle ? sample_order::shuffled : sample_order::sequential,
                 d.drop_last ? leftover::drop : leftover::pad, d.seed}};
      s.set_epoch(d.epoch);
      const auto& expected = d.indices[static_cast<std::size_t>(rank)];
      CHECK(s.size() == expected.size());
      CHECK(all_of(s) == expected);
    }
}

TEST_CASE("sampler: batches are cut from the rank's samples, the last one may be short, then they are empty") {
  sampler s{10, 1, 2, {sample_order::sequential}};
  CHECK(s.batches(2) == 3);
  CHECK(s.batches(5) == 1);
  CHECK(std::ranges::equal(s.take(2), indices{1, 3}));
  CHECK(std::ranges::equal(s.take(2), indices{5, 7}));
  CHECK(s.left() == 1);
  CHECK(std::ranges::equal(s.take(2), indices{9}));
  CHECK(s.take(2).empty());
  CHECK(s.state() == sampler_state{0, 10});
  s.set_epoch(1);
  CHECK(s.left() == 5);
}

TEST_CASE("sampler: exact evaluation sees every sample once, in as many steps on every rank") {
  for (const std::size_t samples : {0u, 1u, 3u, 10u, 17u})
    for (const int ranks : {1, 2, 4, 7}) {
      indices seen;
      std::size_t steps = 0;
      for (int r = 0; r < ranks; ++r) {
        sampler s = sampler::exact(samples, r, ranks);
        if (r == 0) steps = s.batches(2);
        CHECK(s.batches(2) == steps);
        for (std::size_t i = 0; i < steps; ++i) append(seen, s.take(2));
        CHECK(s.left() == 0);
      }
      CHECK(seen.size() == samples);
      CHECK(each(counts(samples, seen), 1));
    }
}

TEST_CASE("sampler: a saved state goes on where it was") {
  for (const leftover rest : {leftover::pad, leftover::drop, leftover::keep}) {
    sampler whole{37, 1, 3, {.rest = rest, .seed = 5}}, first{37, 1, 3, {.rest = rest, .seed = 5}};
    whole.set_epoch(4);
    first.set_epoch(4);
    (void)whole.take(6);
    (void)first.take(6);
    sampler second{37, 1, 3, {.rest = rest, .seed = 5}};
    second.resume(first.state());
    CHECK(all_of(second) == all_of(whole));
  }
}

TEST_CASE("sampler: worlds that shrink and grow in the midst of an epoch see every sample exactly once") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t samples = random() % 60;
    const sampler_options how{.rest = leftover::keep, .seed = random()};
    sampler_state at{random() % 5, 0};
    indices seen;
    for (int world = 0; world < 4; ++world) {
      const int ranks = 1 + static_cast<int>(random() % 6);
      const std::size_t batch = 1 + random() % 4, steps = random() % 4;
      auto all = world_of(samples, ranks, how);
      sampler_state next{};
      for (auto& s : all) {
        s.resume(at);
        for (std::size_t i = 0; i < steps; ++i) append(seen, s.take(batch));
        next = s.state();
        REQUIRE(next == all.front().state());
      }
      at = next;
    }
    sampler rest{samples, 0, 1, how};
    rest.resume(at);
    append(seen, rest.take(samples));
    REQUIRE(seen.size() == samples);
    REQUIRE(each(counts(samples, seen), 1));
  }
}

TEST_CASE("sampler: where nothing is left, all ranks know, and the least state brings no sample again") {
  for (const std::size_t samples : {1u, 3u, 9u, 10u, 11u, 12u})
    for (const std::size_t batch : {1u, 2u, 5u, 100u}) {
      auto all = world_of(samples, 4, {.rest = leftover::keep});
      sampler_state least{~std::uint64_t{0}, 0};
      for (auto& s : all) {
        for (std::size_t i = s.batches(batch); i-- > 0;) (void)s.take(batch);
        least = std::min(least, s.state());
      }
      CHECK(least == sampler_state{0, samples});
      all.front().resume(least);
      CHECK(all.front().take(samples).empty());
    }
  // A rank that has nothing left does not say that of the others.
  auto all = world_of(9, 4, {.rest = leftover::keep});
  for (auto& s : all) {
    (void)s.take(2);
    CHECK(s.state().position == 8);
  }
}

TEST_CASE("sampler: padding after a change of ranks repeats the start of the epoch, no more than one per rank") {
  sampler first{10, 0, 2, {sample_order::sequential}};
  (void)first.take(1);  // 0 and 1 are done
  indices seen;
  for (int r = 0; r < 3; ++r) {
    sampler s{10, 0, 2, {sample_order::sequential}};
    s.resume(first.state(), r, 3);
    append(seen, s.take(9));
  }
  CHECK(seen == indices{2, 5, 8, 3, 6, 9, 4, 7, 0});
}

TEST_CASE("sampler: wrong ranks and states of other data are refused and change nothing") {
  CHECK_THROWS_WITH_AS(sampler(5, 2, 2), "sampler: rank 2 is not in a world of 2", tutti::usage_error);
  CHECK_THROWS_AS(sampler(5, -1, 2), tutti::usage_error);
  CHECK_THROWS_AS(sampler(5, 0, 0), tutti::usage_error);
  sampler s{5, 0, 1, {sample_order::sequential}};
  (void)s.take(2);
  CHECK_THROWS_AS(s.resume({0, 6}), tutti::usage_error);
  CHECK_THROWS_AS(s.resume({0, 0}, 3, 3), tutti::usage_error);
  CHECK_THROWS_AS((void)s.batches(0), tutti::usage_error);
  CHECK(all_of(s) == indices{2, 3, 4});
}

TEST_CASE("sampler: after a rank is lost the others go on from the least state and miss no sample") {
  // Ranks count a step when its all_reduce has ended; a lost rank's steps may have ended on some of them only.
  int losses = 0;
  tutti::for_seeds(1, 60, [&](std::uint64_t seed) {
    constexpr std::size_t samples = 41, batch = 2;
    const sampler_options how{.rest = leftover::keep, .seed = seed};
    std::mt19937_64 random(seed);
    tutti::sim_options world_options{.seed = seed, .memory = tutti::sim_memory::shared};
    world_options.lose_rank = static_cast<int>(random() % 4);
    world_options.lose_at_step = 1 + random() % 60;
    std::vector<sampler_state> done(4);
    std::vector<indices> seen(4);
    try {
      tutti::run_sim(4, world_options, [&](tutti::communicator<tutti::sim>& world) {
        sampler s{samples, world, how};
        const auto me = static_cast<std::size_t>(world.rank());
        for (std::size_t i = s.batches(batch); i-- > 0;) {
          const auto mine = s.take(batch);
          world.all_reduce(static_cast<double>(mine.size())).wait();
          append(seen[me], mine);
          done[me] = s.state();
        }
      });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
    const auto lost = static_cast<std::size_t>(world_options.lose_rank);
    sampler_state least{~std::uint64_t{0}, 0};
    for (std::size_t r = 0; r < 4; ++r)
      if (r != lost) least = std::min(least, done[r]);
    // The survivors are numbered anew. What came before `least` was seen by the four.
    indices rest;
    for (int r = 0; r < 3; ++r) {
      sampler s{samples, r, 3, how};
      s.resume(least);
      append(rest, s.take(samples));
    }
    if (rest.size() != samples - least.position) throw std::runtime_error("not all of the rest");
    sampler whole{samples, 0, 1, how};
    append(rest, whole.take(static_cast<std::size_t>(least.position)));
    if (!each(counts(samples, rest), 1)) throw std::runtime_error("a sample twice or never");
  });
  CHECK(losses > 10);
}
