#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/async/progress_thread.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/pass/external_gradients.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/ranks.hpp"
#include "grad/rounds.hpp"
#include "support/grid.hpp"

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::step;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

/// One that looks at elements itself: all of them are in the bucket.
struct looking_hook {
  template <class T>
  auto operator()(world_t& world, tutti::grad::bucket_view<T> b) const {
    for (const T x : b.elements)
      if (!(static_cast<double>(x) == static_cast<double>(x))) throw std::runtime_error("a gradient is missing");
    return world.all_reduce(b.elements, tutti::sum, {}, b.where);
  }
};

template <class Hook>
void compare(const rounds::round& r, const Hook& hook) {
  tutti::run_threads(r.size, [&](world_t& world) {
    tutti::grad::reducer reducer{world, r.shapes, r.options, hook};
    const rounds::image expected = rounds::run(r, world, reducer);
    for (const auto lie : {rounds::lie::elsewhere, rounds::lie::either})
      expect(rounds::run(r, world, reducer, lie) == expected, "other bits");
  });
}

/// Memory that nobody can read once this has ended.
class fleeting {
 public:
  explicit fleeting(std::size_t count)
      : bytes_(count * sizeof(float)),
        data_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  fleeting(const fleeting&) = delete;
  fleeting& operator=(const fleeting&) = delete;
  ~fleeting() { ::munmap(data_, bytes_); }
  [[nodiscard]] std::span<float> span() const { return {static_cast<float*>(data_), bytes_ / sizeof(float)}; }

 private:
  std::size_t bytes_;
  void* data_;
};

float at(std::size_t i, int rank) { return static_cast<float>(static_cast<int>(i % 1000) - 300 * rank); }
}  // namespace

TEST_CASE("external_gradients: the parts of each bucket, with what becomes of them") {
  const shapes list{{"a", 5}, {"b", 0}, {"c", 100}, {"d", 3}};
  const tutti::grad::plan p = tutti::grad::make_plan(list, {100, 1000});
  REQUIRE(p.buckets.size() == 2);  // d, c and b; a
  tutti::grad::external_gradients e{list.size()};
  e.arrange(p);
  const std::vector<float> a{1, 2, 3, 4, 5}, c(100, 7), d{-1, 0, 1};
  CHECK(e.list<float>(p.buckets[0], 1).empty());
  e.put(3, d.data());
  e.put(1, a.data());
  e.put(0, a.data());
  CHECK(e.has(0));
  CHECK_FALSE(e.has(2));
  const tutti::external_segments first = e.list<float>(p.buckets[0], 3);
  REQUIRE(first.size == 1);  // b has no elements
  CHECK(first.parts[0].first == p.buckets[0].slots[0].offset);
  CHECK(first.parts[0].count == 3);
  float out[3];
  first.bring(first.parts[0].data, out, 3, first.factor);
  CHECK(out[0] == -3);
  e.put(2, c.data());
  const tutti::external_segments second = e.list<float>(p.buckets[1], 1);
  REQUIRE(second.size == 1);
  CHECK(second.parts[0].data == a.data());
  CHECK((second.bring == nullptr));
  CHECK(first.parts[0].data == d.data());  // which travels still
  e.clear();
  CHECK_FALSE(e.has(3));
}

TEST_CASE("external_gradients: random passes have the bits of gradients in the arena, with any hook") {
  std::mt19937_64 random(7);
  for (int i = 0; i < (tutti_test::slow ? 8 : 24); ++i) {
    CAPTURE(i);
    auto r = rounds::random_round(random, 1 + i % 4, i % 3 == 0 ? 1 : 20);
    r.options.order = i % 5 == 2 ? tutti::grad::launch_order::ready : tutti::grad::launch_order::planned;
    r.options.in_flight = static_cast<std::size_t>(i / 4 % 3);
    if (r.shapes.size() > 3) r.options.delayed = {static_cast<int>(random() % 4)};
    if (i % 2 == 1) r.options.replan = tutti::grad::replan::on_drift, r.options.drift_passes = 1;
    compare(r, tutti::grad::sum_hook{});
    compare(r, tutti::grad::mean_hook{});
    compare(r, looking_hook{});
  }
}

TEST_CASE("external_gradients: of buckets that are larger than caches, and past them") {
  const shapes list{{"a", 1'200'001}, {"b", 5}, {"c", 600'000}};
  for (const int size : {2, 3})
    tutti::run_threads(size, [&](world_t& world) {
      tutti::grad::reducer reducer{world, list};
      for (const bool differ : {false, true}) {
        std::vector<std::vector<float>> mine;
        for (const auto& p : list) {
          auto& g = mine.emplace_back(p.count);
          for (std::size_t i = 0; i < g.size(); ++i) g[i] = at(i, world.rank());
        }
        auto pass = reducer.begin(differ ? 1 + world.rank() : 1);
        for (std::size_t i = list.size(); i-- > 0;) pass.ready(i, mine[i]);
        expect(tutti::sync_wait(world, pass.finish()) == step::apply, "a step");
        float total = 0;
        for (int r = 0; r < size; ++r) total += static_cast<float>(differ ? 1 + r : 1);
        for (std::size_t p = 0; p < list.size(); ++p) {
          const auto g = reducer.gradient<float>(p);
          for (std::size_t i = 0; i < g.size(); ++i) {
            float sum = 0;
            for (int r = 0; r < size; ++r) sum += static_cast<float>(differ ? 1 + r : 1) * at(i, r);
            if (g[i] != sum / total) expect(false, "element", i);
          }
        }
      }
    });
}

TEST_CASE("external_gradients: unused parameters, skips, dropped weights and micro-batches are as in the arena") {
  const shapes list{{"a", 3000}, {"b", 3000}, {"c", 40}};
  const auto results = [&](rounds::lie where) {
    std::vector<std::vector<float>> all(3);
    tutti::run_threads(3, [&](world_t& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      const float v = static_cast<float>(1 + rank);
      tutti::grad::reducer reducer{world, list, {.unused = tutti::grad::unused_parameters::tracked}};
      std::vector<std::vector<float>> mine;
      for (const auto& p : list) mine.emplace_back(p.count);
      const auto ready = [&](auto& pass, std::size_t i, float value) {
        std::fill(mine[i].begin(), mine[i].end(), value);
        if (where == rounds::lie::elsewhere) return pass.ready(i, std::span<const float>{mine[i]});
        std::copy(mine[i].begin(), mine[i].end(), reducer.gradient<float>(i).begin());
        pass.ready(i);
      };
      const auto end = [&](auto& pass) {
        all[rank].push_back(static_cast<float>(tutti::sync_wait(world, pass.finish())));
        for (std::size_t i = 0; i < list.size(); ++i) {
          all[rank].push_back(reducer.gradient<float>(i).front());
          all[rank].push_back(reducer.gradient<float>(i).back());
          all[rank].push_back(reducer.used(i));
        }
      };
      {  // c is used by no rank, b by one
        auto pass = reducer.begin(rank == 2 ? 0 : v);
        ready(pass, 0, rank == 2 ? std::numeric_limits<float>::infinity() : v);
        rank == 0 ? ready(pass, 1, 5) : pass.unused(1);
        pass.unused(2);
        end(pass);
      }
      {  // one rank skips
        auto pass = reducer.begin();
        ready(pass, 2, v);
        if (rank == 1)
          pass.skip(step::skip_overflow);
        else
          ready(pass, 1, v), ready(pass, 0, v);
        expect(tutti::sync_wait(world, pass.finish()) == step::skip_overflow, "a skip");
      }
      for (int round = 0; round < 2; ++round) {  // in the last one of a step b is left to what was there
        auto part = reducer.begin(tutti::grad::accumulate, 2);
        for (std::size_t i = 0; i < 3; ++i) ready(part, i, v + 1);
        tutti::sync_wait(world, part.finish());
        auto pass = reducer.begin(v);
        ready(pass, 2, v);
        rank == 1 ? pass.unused(1) : ready(pass, 1, v);
        ready(pass, 0, 2 * v);
        end(pass);
      }
    });
    return all;
  };
  CHECK(results(rounds::lie::elsewhere) == results(rounds::lie::in_the_arena));
}

TEST_CASE("external_gradients: when a pass has ended or was dropped, nobody reads what was given with its marks") {
  const shapes list(6, {"p", 70'000});
  for (int i = 0; i < (tutti_test::slow ? 12 : 36); ++i) {
    CAPTURE(i);
    const auto seen = ranks::outcomes(3, [&](world_t& world) {
      tutti::grad::reducer_options how{.limits = {200'000, 500'000}};
      if (i % 3 == 1) how.order = tutti::grad::launch_order::ready;
      tutti::grad::reducer reducer{world, list, how};
      std::optional<tutti::progress_thread> driver;
      if (i % 2 == 1) driver.emplace(world.engine());
      const auto step = [&](int last) {
        std::deque<fleeting> mine;  // outlives the pass
        auto pass = reducer.begin(1 + world.rank());
        for (int p = 5; p >= last; --p) pass.ready(static_cast<std::size_t>(p), mine.emplace_back(70'000).span());
        if (last > 0) throw std::runtime_error("backward");
        tutti::sync_wait(world, pass.finish());
      };
      step(0);
      try {
        step(world.rank() == i % 3 ? 1 + i / 3 % 5 : 0);
      } catch (...) {
        for (int polls = 0; polls < 100; ++polls) world.engine().poll();
        throw;
      }
    });
    for (int r = 0; r < 3; ++r) {
      const auto& o = seen[static_cast<std::size_t>(r)];
      CHECK((r == i % 3 ? o.says("backward") : o.failed == tutti::errc::aborted));
    }
  }
}

TEST_CASE("external_gradients: what cannot be is refused and changes nothing") {
  const auto seen = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"weight", 2000}, {"bias", 8}};
    tutti::grad::reducer reducer{world, list};
    const std::vector<float> g(2000, 3), other(2000, 9);
    const std::vector<double> wide(2000);
    const auto refuses = [](auto call, const std::string& words) {
      const auto o = ranks::outcome_of(call);
      expect(o.usage && o.says(words), o.text + ", not " + words);
    };
    auto pass = reducer.begin();
    refuses([&] { pass.ready(2, g); }, "there is no parameter 2 among 2");
    refuses([&] { pass.ready(1, g); }, "parameter 1 (bias) has 8 elements, and was given 2000");
    refuses([&] { pass.ready(0, wide); }, "float32");
    refuses([&] { pass.ready(1, reducer.gradient<float>(0).first(8)); }, "in the reducer's memory that is not its own");
    pass.ready(0, g);
    refuses([&] { pass.ready(0, other); }, "was marked twice");
    for (float& x : reducer.gradient<float>(1)) x = 4;
    pass.ready(1, reducer.gradient<float>(1));  // in place
    tutti::sync_wait(world, pass.finish());
    expect(reducer.gradient<float>(0)[1999] == 3 && reducer.gradient<float>(1)[7] == 4, "the means");
  });
  for (const auto& o : seen) CHECK_MESSAGE(o.fine(), o.text);
}
