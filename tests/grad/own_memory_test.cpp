#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <list>
#include <random>
#include <span>
#include <string>
#include <tutti/algo/collectives.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/own_memory.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/all_hooks.hpp"
#include "grad/ranks.hpp"
#include "grad/rounds.hpp"

namespace {

using namespace tutti::grad;
using tutti::dtype;
using world_t = tutti::communicator<tutti::threads>;
using shapes = std::vector<parameter_shape>;

static_assert(gradient_memory<std::span<float>> && gradient_memory<std::vector<float>&>);
static_assert(gradient_memory<std::vector<std::vector<float>>&> && gradient_memory<std::list<std::span<double>>>);
static_assert(gradient_memory<std::vector<gradient_block>>);
static_assert(!gradient_memory<std::vector<float>> && !gradient_memory<std::vector<std::vector<float>>>);
static_assert(!gradient_memory<std::span<const float>> && !gradient_memory<reducer_options>);

/// Memory of a model's gradients in blocks that begin where `begins` says, and wherever the type changes.
class blocks {
 public:
  blocks(const shapes& list, const std::vector<char>& begins) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].count == 0) continue;
      if (all_.empty() || begins[i] != 0 || all_.back().type != list[i].type) {
        gradient_block& b = all_.emplace_back();
        b.type = list[i].type;
      }
      all_.back().count += list[i].count;
    }
    for (gradient_block& b : all_) {
      memory_.emplace_back(b.bytes() / sizeof(double) + 2);
      b.data = reinterpret_cast<std::byte*>(memory_.back().data()) + 8;
    }
  }
  std::vector<gradient_block> list() const { return all_; }

 private:
  std::vector<gradient_block> all_;
  std::vector<std::vector<double>> memory_;
};

std::vector<char> random_begins(std::mt19937_64& random, std::size_t n) {
  std::vector<char> begins(n);
  const std::size_t one_in = 1 + random() % 4;
  for (char& b : begins) b = random() % one_in == 0;
  return begins;
}

using image = rounds::image;

/// The results of a round on every rank, twice with one reducer.
template <class Make>
std::vector<image> results(const rounds::round& r, rounds::lie where, Make make) {
  std::vector<image> all(static_cast<std::size_t>(r.size) * 2);
  tutti::run_threads(r.size, [&](world_t& world) {
    make(world, [&](auto& reducer) {
      for (std::size_t pass = 0; pass < 2; ++pass)
        all[static_cast<std::size_t>(world.rank()) * 2 + pass] = rounds::run(r, world, reducer, where);
    });
  });
  return all;
}

template <class Hook>
void compare_rounds(std::uint64_t seed, int count) {
  std::mt19937_64 random{seed};
  for (int n = 0; n < count; ++n) {
    CAPTURE(seed);
    CAPTURE(n);
    const int size = 1 + static_cast<int>(random() % 4);
    rounds::round r = rounds::random_round(random, size, n % 8 == 0 ? 300 : 1);
    if (random() % 3 == 0) r.options.order = launch_order::ready;
    if (random() % 3 == 0) r.options.in_flight = 1 + random() % 3;
    if (random() % 3 == 0) r.options.unused = unused_parameters::tracked;
    const auto begins = random_begins(random, r.shapes.size());
    const auto where = static_cast<rounds::lie>(random() % 3);
    const auto expected = results(r, rounds::lie::in_the_arena, [&](world_t& world, auto run) {
      reducer in_arena{world, r.shapes, r.options, Hook{}};
      run(in_arena);
    });
    const auto got = results(r, where, [&](world_t& world, auto run) {
      const blocks own{r.shapes, begins};
      reducer in_place{world, r.shapes, own.list(), r.options, Hook{}};
      run(in_place);
    });
    REQUIRE(got == expected);
  }
}

}  // namespace

TEST_CASE("own memory: random passes have the arena's bits, in blocks of any kind") {
  compare_rounds<sum_hook>(1, 60);
  compare_rounds<mean_hook>(2, 25);
  compare_rounds<divide_after_hook>(3, 25);
}

TEST_CASE("own memory: gradients lie where the caller put them, with what was there, and their means too") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes list{{"a", 3}, {"b", 1000}, {"none", 0}, {"c", 5}};
    std::vector<float> memory(1008, 7);
    reducer r{world, list, memory};
    const float* at = memory.data();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto g = r.gradient<float>(i);
      ranks::expect(list[i].count == 0 || g.data() == at, "elsewhere");
      at += list[i].count;
      for (const float x : g) ranks::expect(x == 7, "changed");
    }
    for (int n = 0; n < 3; ++n) {
      auto pass = r.begin(world.rank() + 1);
      std::fill(memory.begin(), memory.end(), static_cast<float>(3 * world.rank()));
      for (std::size_t i = list.size(); i-- > 0;) pass.ready(i);
      ranks::expect(tutti::sync_wait(world, pass.finish()) == step::apply, "skipped");
      for (const float x : memory) ranks::expect(x == 2, "no mean");
      ranks::expect(r.total_weight() == 3, "another weight");
    }
    ranks::expect(r.bytes() < 1008 * sizeof(float) + 2 * 4096, "a copy");
  });
}

TEST_CASE("own memory: passes that skip, accumulate, leave out and are discarded") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes list{{"a", 100}, {"b", 100}, {"c", 100}};
    std::vector<std::vector<float>> memory(3, std::vector<float>(100));
    reducer r{world, list, memory, {.limits = {1, 1}, .unused = unused_parameters::tracked}};
    const auto fill = [&](float x) {
      for (auto& m : memory) std::fill(m.begin(), m.end(), x);
    };
    {
      fill(1);
      auto pass = r.begin();
      if (world.rank() == 1) pass.skip(step::skip_overflow);
      for (std::size_t i = 0; world.rank() == 0 && i < 3; ++i) pass.ready(i);
      ranks::expect(tutti::sync_wait(world, pass.finish()) == step::skip_overflow, "not skipped");
    }
    {
      fill(5);
      auto pass = r.begin();
      pass.ready(2);
      world.rank() == 0 ? pass.ready(1) : pass.unused(1);
      pass.unused(0);
      (void)tutti::sync_wait(world, pass.finish());
      ranks::expect(memory[2][99] == 5 && memory[1][0] == 2.5F, "another mean");
      ranks::expect(memory[0][50] == 5 && !r.used(0) && r.used(1), "the unused one is not as it was");
    }
    {
      fill(1);
      auto part = r.begin(accumulate);
      (void)tutti::sync_wait(world, part.finish());
      r.discard();
      ranks::expect(memory[0][0] == 0 && memory[2][99] == 0, "not discarded");
    }
  });
}

TEST_CASE("own memory: rebuild() changes the plan, and moves nothing") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes list{{"a", 100}, {"b", 100}, {"c", 100}, {"d", 100}};
    std::vector<float> memory(400);
    reducer r{world, list, memory, {.limits = {800, 800}}};
    ranks::expect(!tutti::sync_wait(world, r.rebuild()), "rebuilt for nothing");
    for (int n = 0; n < 2; ++n) {
      auto pass = r.begin();
      for (std::size_t k = 0; k < 400; ++k) memory[k] = static_cast<float>(k) * static_cast<float>(world.rank());
      for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{1}, std::size_t{3}}) pass.ready(i);
      (void)tutti::sync_wait(world, pass.finish());
      for (std::size_t k = 0; k < 400; ++k) ranks::expect(memory[k] == static_cast<float>(k) / 2, "no mean");
      if (n == 0) ranks::expect(tutti::sync_wait(world, r.rebuild()), "not rebuilt");
      ranks::expect(r.gradient<float>(3).data() == memory.data() + 300, "moved");
    }
    ranks::expect(r.layout().buckets.size() == 3 && r.layout().buckets[0].slots[1].parameter == 2, "another plan");
  });
}

TEST_CASE("own memory: every hook, in one block and in several") {
  namespace all = all_hooks;
  for (const int size : {1, 2, 3})
    tutti::run_threads(size, [](world_t& world) {
      for (const all::kind which : all::kinds) {
        const auto passes = [&](auto& r) { return all::passes(world, r, which == all::kind::tree); };
        const reducer_options how{.limits = {256, 256}};
        const shapes list = all::shapes();
        reducer in_arena{world, list, how, all::any_hook{world, which, all::shards}};
        const std::vector<float> expected = passes(in_arena);
        for (const std::vector<char>& begins : {std::vector<char>{0, 0, 0}, std::vector<char>{0, 1, 1}}) {
          const blocks own{list, begins};
          reducer in_place{world, list, own.list(), how, all::any_hook{world, which, all::shards}};
          const std::vector<float> got = passes(in_place);
          for (std::size_t k = 0; k < got.size(); ++k) {
            const bool approximate = which == all::kind::int8;  // its blocks begin elsewhere
            ranks::expect(approximate ? std::abs(got[k] - expected[k]) < 0.03F : got[k] == expected[k],
                          "hook " + std::to_string(static_cast<int>(which)) + ": " + std::to_string(got[k]) +
                              " where the arena has " + std::to_string(expected[k]));
          }
        }
      }
      for (const std::vector<char>& begins : {std::vector<char>{0, 0, 0}, std::vector<char>{0, 1, 1}}) {
        const shapes list = all::shapes();
        const blocks own{list, begins};
        reducer in_arena{world, list, {}, adasum_hook{}}, in_place{world, list, own.list(), {}, adasum_hook{}};
        const auto expected = all::passes(world, in_arena, false), got = all::passes(world, in_place, false);
        ranks::expect(expected == got, "adasum_hook: other bits");
      }
    });
}

TEST_CASE("own memory: an algorithm that lists of buffers do not have takes buckets of one range") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes list = all_hooks::shapes();
    const blocks own{list, {0, 1, 1}};
    const sum_hook hook{{.via = tutti::algorithm::halving_doubling}};
    const auto is_accepted = tutti::algo::traits<tutti::all_reduce_coalesced_args>::algorithms;
    ranks::expect(std::ranges::find(is_accepted, hook.how.via) == is_accepted.end(), "choose another algorithm");
    reducer in_arena{world, list, {}, hook}, in_place{world, list, own.list(), {}, hook};
    const auto expected = all_hooks::passes(world, in_arena, false), got = all_hooks::passes(world, in_place, false);
    ranks::expect(expected == got, "other bits");
  });
}

TEST_CASE("own memory: where it is not that of the shapes, an error that says what is wrong, on all ranks") {
  const shapes list{{"a", 10}, {"b", 20}, {"h", 8, dtype::bf16}};
  std::vector<float> first(30), one(10), more(31), twice(20);
  std::vector<tutti::bfloat16> half(8);
  const auto says = [&](const std::vector<gradient_block>& own, const std::string& part) {
    const auto all = ranks::outcomes(2, [&](auto& world) {
      // Rank 1's memory is right.
      const std::vector<gradient_block> good{first, half};
      reducer r{world, list, world.rank() == 0 ? own : good};
    });
    CAPTURE(all[0].text);
    CAPTURE(all[1].text);
    CHECK(all[0].usage);
    CHECK(all[0].says(part));
    CHECK(all[1].failed == tutti::errc::mismatch);
    CHECK(all[1].says(part));
  };
  says({std::span{first}.first(25), half},
       "block 0 of the memory of gradients (25 x float32) ends inside of parameter 1 (b)");
  says({first}, "ends before parameter 2 (h)");
  says({}, "ends before parameter 0 (a)");
  says({more, half}, "block 0 of the memory of gradients (31 x float32)");
  says({first, half, one}, "block 2 of the memory of gradients (10 x float32) has 10 elements behind the last");
  says({first, twice}, "holds parameter 2 (h), which is bfloat16");
  says({std::span{twice}.first(10), twice, half}, "block 1 of the memory of gradients (20 x float32) overlaps block 0");
  says({gradient_block{std::span<float>{static_cast<float*>(nullptr), 30}}, half}, "address 0");
}

TEST_CASE("own memory: ranks whose blocks differ, and a rank with none, are told") {
  const shapes list{{"a", 10}, {"b", 20}};
  const auto all = ranks::outcomes(3, [&](auto& world) {
    std::vector<float> whole(30);
    if (world.rank() == 0) reducer r{world, list, whole};
    if (world.rank() == 1) reducer r{world, list};
    if (world.rank() == 2) {
      const std::vector<std::span<float>> parts{std::span{whole}.first(10), std::span{whole}.last(20)};
      reducer r{world, list, parts};
    }
  });
  for (const auto& o : all) {
    CAPTURE(o.text);
    CHECK(o.failed == tutti::errc::mismatch);
    CHECK(o.says("memory of their gradients"));
  }
}
