#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reducer.hpp>
#include <utility>
#include <vector>

#include "grad/ranks.hpp"
#include "grad/rounds.hpp"
#include "support/grid.hpp"

// When buckets leave: how many at a time, in which order, and what waits for the end.

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::bucket_view;
using tutti::grad::launch_order;
using tutti::grad::reducer;
using tutti::grad::reducer_options;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

/// Buckets of a rank that are under way, and the most that ever were.
struct census {
  std::atomic<int> now{0}, most{0};
  void begin() { most = std::max<int>(most, ++now); }
};

/// Tells when it has ended.
struct counted_op {
  tutti::op inner;
  census* count;
  std::shared_ptr<bool> told = std::make_shared<bool>(false);

  void tell() const {
    if (!std::exchange(*told, true)) --count->now;
  }
  [[nodiscard]] bool done() const noexcept {
    if (inner.done()) tell();
    return inner.done();
  }
  auto operator co_await() && {
    tell();
    return std::move(inner).operator co_await();
  }
};
struct counting_hook {
  census* count;
  template <class Comm, class T>
  counted_op operator()(Comm& world, bucket_view<T> b) const {
    count->begin();
    return {world.all_reduce(b.elements), count};
  }
};
/// Half of its work is done later, in a task, whose collectives need an order.
struct counting_tasks {
  census* count;
  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) const {
    count->begin();
    return later(world, b, world.all_reduce(b.tail()));
  }
  template <class Comm, class T>
  tutti::task<> later(Comm& world, bucket_view<T> b, tutti::op tails) const {
    tutti::op mine = std::move(tails);
    co_await std::move(mine);
    co_await world.all_reduce(b.gradients());
    --count->now;
  }
};

const shapes ten(10, {"w", 40, dtype::f32});

std::vector<std::size_t> shuffled(std::size_t n, unsigned seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937{seed});
  return order;
}

template <class Hook>
void check_bound(Hook (*make)(census*)) {
  for (const launch_order order : {launch_order::planned, launch_order::ready})
    for (const int bound : {1, 2, 3}) {
      std::atomic<int> reached = 0;
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        census count;
        const auto most = static_cast<std::size_t>(bound);
        reducer r{world, ten, {.limits = {1, 1}, .order = order, .in_flight = most}, make(&count)};
        for (unsigned p = 0; p < 20; ++p) {
          auto pass = r.begin();
          for (const std::size_t i : shuffled(10, 3 * p + static_cast<unsigned>(world.rank()))) {
            for (float& x : r.template gradient<float>(i)) x = static_cast<float>(world.rank());
            pass.ready(i);
          }
          (void)tutti::sync_wait(world, pass.finish());
          expect(count.now == 0 && r.template gradient<float>(3)[7] == 1, "the mean");
        }
        expect(count.most <= bound, std::to_string(count.most) + " at a time, not " + std::to_string(bound));
        if (count.most == bound) ++reached;
      });
      CHECK(reached > 0);
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

/// Two collectives for each bucket, the second of them, the default's, when the first has ended.
struct two_step_hook {
  static constexpr auto scale = tutti::grad::scaling::divided;
  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) const {
    (void)co_await world.all_reduce(static_cast<int>(b.index), tutti::max);
    co_await world.all_reduce(b.elements, tutti::mean_over(b.divisor));
  }
};
}  // namespace

TEST_CASE("launcher: no more buckets are under way than the bound, of operations and of tasks") {
  check_bound<counting_hook>([](census* c) { return counting_hook{c}; });
  check_bound<counting_tasks>([](census* c) { return counting_tasks{c}; });
}

TEST_CASE("launcher: under any order of marks, bound and schedule the bits are those of the plan's order") {
  tutti::for_seeds(1, tutti_test::slow ? 60 : 300, [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    rounds::round r = rounds::random_round(random, 1 + static_cast<int>(seed % 5));
    for (std::size_t i = 0; i < r.shapes.size(); ++i)
      if (random() % 5 == 0) r.options.delayed.push_back(static_cast<int>(i));
    rounds::round other = r;
    other.options.order = seed % 4 == 0 ? launch_order::planned : launch_order::ready;
    other.options.in_flight = random() % 5;
    const tutti::sim_options how{.seed = seed,
                                 .memory = seed % 2 ? tutti::sim_memory::shared : tutti::sim_memory::separate};
    std::vector<rounds::image> expected(static_cast<std::size_t>(r.size)), got(expected), stepped(expected);
    tutti::run_sim(r.size, how, [&](tutti::communicator<tutti::sim>& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      reducer strict{world, r.shapes, r.options};
      expected[rank] = rounds::run(r, world, strict);
      reducer loose{world, r.shapes, other.options};
      reducer steps{world, r.shapes, other.options, two_step_hook{}};
      for (int pass = 0; pass < 2; ++pass) {
        got[rank] = rounds::run(other, world, loose);
        stepped[rank] = rounds::run(other, world, steps);
      }
    });
    for (const auto& image : got)
      if (image != expected[0]) throw std::runtime_error("other bits");
    for (const auto& image : stepped)
      if (image != expected[0]) throw std::runtime_error("other bits of tasks");
  });
}

TEST_CASE("launcher: the same among threads, one of which serves them") {
  std::mt19937_64 random(9);
  for (int i = 0; i < 30; ++i) {
    CAPTURE(i);
    rounds::round r = rounds::random_round(random, 1 + i % 4);
    std::vector<rounds::image> all(static_cast<std::size_t>(r.size)), tasks(all), expected(all);
    const auto strict = r.options;
    r.options.order = i % 3 == 0 ? launch_order::planned : launch_order::ready;
    r.options.in_flight = random() % 4;
    tutti::run_threads(r.size, [&](world_t& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      reducer plain{world, r.shapes, strict};
      expected[rank] = rounds::run(r, world, plain);
      const tutti::progress_thread server{world.engine()};
      reducer loose{world, r.shapes, r.options};
      reducer steps{world, r.shapes, r.options, two_step_hook{}};
      for (int pass = 0; pass < 2; ++pass) {
        all[rank] = rounds::run(r, world, loose);
        tasks[rank] = rounds::run(r, world, steps);
      }
    });
    for (const auto& image : all) CHECK(image == expected[0]);
    for (const auto& image : tasks) CHECK(image == expected[0]);
  }
}

namespace {
/// Writes down when it is called and when it ends, as a hook that keeps something changes that.
struct diary_hook {
  static constexpr auto scale = tutti::grad::scaling::divided;
  std::vector<std::size_t>* pages;

  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) {
    pages->push_back(2 * b.index);
    return end(b.index, world.all_reduce(b.elements, tutti::mean_over(b.divisor)));
  }
  tutti::task<> end(std::size_t bucket, tutti::op sum) {
    tutti::op mine = std::move(sum);
    co_await std::move(mine);
    pages->push_back(2 * bucket + 1);
  }
};
}  // namespace

TEST_CASE("launcher: a hook inside of another is at work on one bucket at a time, also among threads") {
  shapes mixed;
  for (int i = 0; i < 12; ++i)
    mixed.push_back({"", 40, i % 3 == 0 ? dtype::f32 : i % 3 == 1 ? dtype::f16 : dtype::bf16});
  std::vector<std::size_t> in_turn(2 * mixed.size());
  std::iota(in_turn.begin(), in_turn.end(), std::size_t{0});
  for (const launch_order order : {launch_order::planned, launch_order::ready})
    for (const std::size_t bound : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
      const auto all = ranks::outcomes(2, [&](world_t& world) {
        const tutti::progress_thread server{world.engine()};
        std::vector<std::size_t> pages;
        reducer r{world,
                  mixed,
                  {.limits = {1, 1}, .order = order, .in_flight = bound},
                  tutti::grad::compress_hook<tutti::float16, diary_hook>{diary_hook{&pages}}};
        for (unsigned p = 0; p < 20; ++p) {
          pages.clear();
          auto pass = r.begin();
          for (const std::size_t i : shuffled(12, 3 * p + static_cast<unsigned>(world.rank()))) {
            tutti::grad::visit_gradient(mixed[i].type, [&]<class T>() {
              for (T& x : r.template gradient<T>(i)) x = T(static_cast<float>(2 * world.rank()));
            });
            pass.ready(i);
          }
          (void)tutti::sync_wait(world, pass.finish());
          expect(pages == in_turn, "a bucket before another had ended");
          for (std::size_t i = 0; i < 12; ++i)
            tutti::grad::visit_gradient(mixed[i].type, [&]<class T>() {
              for (const T x : r.template gradient<T>(i)) expect(static_cast<float>(x) == 1, "the mean");
            });
        }
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

namespace {
/// Remembers when buckets have ended: by an operation that is issued behind each.
struct watching_hook {
  std::vector<std::optional<tutti::basic_op<float>>>* behind;
  template <class Comm, class T>
  tutti::op operator()(Comm& world, bucket_view<T> b) const {
    tutti::op sum = world.all_reduce(b.elements);
    (*behind)[b.index].emplace(world.all_reduce(0.0f));
    return sum;
  }
};
}  // namespace

TEST_CASE("launcher: out of order, buckets end while one is late; in the plan's order none does") {
  for (const launch_order order : {launch_order::ready, launch_order::planned})
    for (const std::size_t bound : {std::size_t{0}, std::size_t{2}}) {
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        std::vector<std::optional<tutti::basic_op<float>>> behind(10);
        reducer r{world, ten, {.limits = {1, 1}, .order = order, .in_flight = bound}, watching_hook{&behind}};
        auto gate = world.split(0);
        auto pass = r.begin();
        // On rank 1 the first bucket is late, on rank 2 the third.
        const std::size_t late = world.rank() == 1 ? 9 : world.rank() == 2 ? 7 : 10;
        for (std::size_t i = 10; i-- > 0;)
          if (i != late) pass.ready(i);
        const auto ended = [&] {
          return std::count_if(behind.begin(), behind.end(), [](auto& o) { return o && o->done(); });
        };
        // Buckets of two parameters are late, and the last one leaves last.
        const bool out_of_order = order == launch_order::ready && bound == 0;
        const int patience = out_of_order ? 10000000 : 2000;
        for (int polls = 0; polls < patience && ended() < (out_of_order ? 7 : 1); ++polls) world.engine().poll();
        const auto early = ended();
        gate.barrier().wait();
        if (late < 10) pass.ready(late);
        (void)tutti::sync_wait(world, pass.finish());
        if (order == launch_order::planned)
          expect(early == 0, std::to_string(early) + " ended behind one that is late");
        else if (bound == 0)
          expect(early == 7, std::to_string(early) + " of 7 ended");
        behind.clear();
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

TEST_CASE("launcher: what is delayed needs no mark, and leaves with finish() in a bucket of its own") {
  for (const launch_order order : {launch_order::ready, launch_order::planned}) {
    const auto all = ranks::outcomes(2, [&](world_t& world) {
      std::vector<std::optional<tutti::basic_op<float>>> behind(3);
      const shapes list{{"tied", 5, dtype::f32}, {"a", 3, dtype::f32}, {"b", 4, dtype::f32}};
      const reducer_options options{
          .limits = {1, 1}, .unused = tutti::grad::unused_parameters::tracked, .order = order, .delayed = {0, 2}};
      reducer r{world, list, options, watching_hook{&behind}};
      expect(r.layout().delayed == 2 && r.layout().buckets[0].slots[0].parameter == 1, "last");
      for (int round = 0; round < 3; ++round) {
        for (auto& o : behind) o.reset();
        auto pass = r.begin(1 + world.rank());
        const auto fill = [&](std::size_t i) {
          for (float& x : r.gradient<float>(i)) x = static_cast<float>(3 * world.rank());
        };
        fill(0);
        fill(1);
        fill(2);
        if (round == 1) pass.ready(0);
        pass.ready(1);
        pass.rest_unused();  // not what is delayed
        expect(behind[0] && !behind[1] && !behind[2], "only the first has left");
        fill(2);  // as it has not left
        const bool skips = round == 2 && world.rank() == 1;
        if (skips) pass.skip(tutti::grad::step::skip_failure);
        const auto step = tutti::sync_wait(world, pass.finish());
        expect((step == tutti::grad::step::apply) == (round < 2), "step");
        for (std::size_t i = 0; round < 2 && i < 3; ++i) expect(r.gradient<float>(i)[2] == 2 && r.used(i), "the mean");
      }
      behind.clear();
      const auto odd = ranks::outcome_of([&] { reducer bad{world, list, {.delayed = {3}}}; });
      expect(odd.usage && odd.says("no parameter 3 to be delayed"), odd.text);
    });
    for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  }
}

TEST_CASE("launcher: a backward pass that throws while tasks are under way ends them, and aborts") {
  for (const launch_order order : {launch_order::ready, launch_order::planned})
    for (std::size_t marked = 1; marked < 10; ++marked) {
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        census count;
        std::optional<tutti::progress_thread> server;
        if (marked % 2 == 0) server.emplace(world.engine());
        const reducer_options options{.limits = {1, 1}, .order = order, .in_flight = 2};
        reducer r{world, ten, options, counting_tasks{&count}};
        auto pass = r.begin();
        for (std::size_t i = 10; i-- > 0;) {
          if (world.rank() == 1 && 10 - i > marked) throw std::runtime_error("backward");
          pass.ready(i);
        }
        (void)tutti::sync_wait(world, pass.finish());
      });
      CHECK(all[1].text == "other: backward");
      for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) CHECK(all[r].failed == tutti::errc::aborted);
    }
}

TEST_CASE("launcher: ranks that launch by other rules are found before they wait for each other") {
  for (const int which : {0, 1, 2}) {
    const auto all = ranks::outcomes(2, [&](world_t& world) {
      reducer_options options;
      if (world.rank() == 1 && which == 0) options.in_flight = 3;
      if (world.rank() == 1 && which == 1) options.order = launch_order::ready;
      if (world.rank() == 1 && which == 2) options.graph = tutti::grad::graph::fixed;
      reducer r{world, ten, options};
    });
    for (const auto& o : all) {
      CHECK(o.failed == tutti::errc::mismatch);
      CHECK_MESSAGE(o.says("rank 1 has other options"), o.text);
    }
  }
}
