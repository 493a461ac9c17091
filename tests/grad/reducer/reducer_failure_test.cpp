#include <doctest/doctest.h>

#include <barrier>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/reducer.hpp>
#include <utility>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using ranks::outcome;
using ranks::outcome_of;
using ranks::whole_pass;
using tutti::dtype;
using tutti::errc;
using tutti::grad::launch_order;
using tutti::grad::parameter_shape;
using tutti::grad::reducer;
using world_t = ranks::communicator;
using shapes = std::vector<parameter_shape>;

// Three buckets of one parameter each; launched in the order c, b, a. With float16 the weights travel ahead.
const shapes three{{"a", 5, dtype::f32}, {"layer.b", 7, dtype::f32}, {"c", 3, dtype::f32}};
const shapes half{{"a", 5, dtype::f16}, {"layer.b", 7, dtype::f16}, {"c", 3, dtype::f16}};
const tutti::grad::reducer_options apart{{1, 1}};

/// Rank 1 of three does `wrong(world, reducer)`, the others a whole pass; all of them are told.
template <class Wrong>
outcome outcome_of_wrong_rank(const shapes& list, Wrong wrong, const char* words = "aborted by rank 1") {
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    reducer r{world, list, apart};
    whole_pass(world, r);
    if (world.rank() == 1)
      wrong(world, r);
    else
      whole_pass(world, r);
  });
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
    CAPTURE(all[r].text);
    CHECK(all[r].failed == errc::aborted);
    CHECK(all[r].says(words));
  }
  return all[1];
}

struct broken_backward : std::runtime_error {
  broken_backward() : runtime_error("backward") {}
};

/// Sums, but throws what it was told to throw when it meets one bucket.
struct throwing_hook {
  std::size_t at = 99;
  bool memory = false;

  template <class Comm, class T>
  auto operator()(Comm& world, tutti::grad::bucket_view<T> b) const {
    if (b.index == at) {
      if (memory) throw std::bad_alloc();
      throw tutti::usage_error("hook of bucket " + std::to_string(b.index));
    }
    return world.all_reduce(b.elements);
  }
};
}  // namespace

TEST_CASE("reducer: an exception in the backward pass reaches the caller; the peers are aborted at once") {
  for (const shapes* list : {&three, &half})
    for (std::size_t marked = 0; marked < 3; ++marked) {  // all three may arrive before the abort
      const outcome o = outcome_of_wrong_rank(
          *list,
          [&](world_t&, auto& r) {
            auto pass = r.begin();
            for (std::size_t i = 0; i < marked; ++i) pass.ready(2 - i);
            throw broken_backward();
          },
          ": a pass was dropped there");
      CHECK(o.text == "other: backward");
    }
}

TEST_CASE("reducer: the same while peers may be reading and writing its buckets in place") {
  const shapes large{{"w", std::size_t{1} << 17, dtype::f32}};
  for (int polls = 0; polls < 20; ++polls) {
    const auto all = ranks::outcomes(3, [&](world_t& world) {
      reducer r{world, large};
      auto pass = r.begin();
      pass.ready(0);
      if (world.rank() == 1) {
        for (int i = 0; i < polls; ++i) world.engine().poll();
        throw broken_backward();
      }
      tutti::sync_wait(world, pass.finish());
    });
    CHECK(all[1].text == "other: backward");
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
      CHECK((all[r].fine() || all[r].failed == errc::aborted));
  }
}

TEST_CASE("reducer: the same inside a coroutine, while others are suspended in finish()") {
  const auto train = [](world_t& world, reducer<world_t>& r) -> tutti::task<> {
    for (int step = 0;; ++step) {
      auto pass = r.begin();
      for (std::size_t i = 0; i < r.size(); ++i) {
        if (step == 3 && i == 2 && world.rank() == 1) throw broken_backward();
        pass.ready(i);
      }
      co_await pass.finish();
    }
  };
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    reducer r{world, three, apart};
    tutti::sync_wait(world, train(world, r));
  });
  CHECK(all[0].failed == errc::aborted);
  CHECK(all[1].text == "other: backward");
  CHECK(all[2].failed == errc::aborted);
}

TEST_CASE("reducer: a rank that has run out is named where the others call something else meanwhile") {
  const auto try_it = [](auto hook, launch_order order) {
    const auto all = ranks::outcomes(3, [&](world_t& world) {
      reducer r{world, three, {.order = order}, hook};
      for (int k = 0; k < 2; ++k) {
        auto pass = r.begin(world.rank() == 1 ? 0 : 1);
        pass.rest_unused();
        std::vector<float> v(10);
        if (world.rank() != 1) world.broadcast(v, 0).wait();
        (void)tutti::sync_wait(world, pass.finish());
      }
    });
    for (const outcome& o : all) {
      CAPTURE(o.text);
      CHECK(o.failed == errc::mismatch);
      if (&o == &all[1]) {
        CHECK(o.says("weight 0 on this rank, which has run out of samples"));
        CHECK(o.says("broadcast"));
      } else {
        CHECK(o.says("rank 1"));  // its call, or a bucket that travels in a group of its own
        CHECK(o.says("called"));
        CHECK(o.says("all_reduce"));
      }
    }
  };
  for (const launch_order order : {launch_order::planned, launch_order::ready}) {
    try_it(tutti::grad::sum_hook{}, order);
    try_it(tutti::grad::mean_hook{}, order);
    try_it(tutti::grad::divide_after_hook{}, order);
  }
}

TEST_CASE("reducer: a parameter that was never marked is named where it was forgotten") {
  for (const shapes* list : {&three, &half}) {
    const outcome o = outcome_of_wrong_rank(*list, [](world_t& world, auto& r) {
      auto pass = r.begin();
      pass.ready(0);
      pass.ready(2);
      tutti::sync_wait(world, pass.finish());
    });
    CHECK(o.usage);
    CHECK(o.says("parameter 1 (layer.b) was never marked"));
  }
}

TEST_CASE("reducer: dropping the task of finish() drops the pass") {
  const outcome o = outcome_of_wrong_rank(three, [](world_t&, auto& r) {
    auto pass = r.begin();
    for (const std::size_t i : {0U, 2U}) pass.ready(i);  // not all, or the others might end before they hear of it
    {
      auto never_awaited = pass.finish();
    }
    auto another = r.begin();  // the pass is over
    const outcome late = outcome_of([&] { pass.ready(0); });
    if (!late.usage) throw std::runtime_error("accepted");
  });
  CHECK(o.fine());
}

TEST_CASE("reducer: an error in finish() ends the pass even while its task lives on") {
  const outcome o = outcome_of_wrong_rank(three, [](world_t& world, auto& r) {
    auto pass = r.begin();
    auto task = std::make_unique<tutti::task<tutti::grad::step>>(pass.finish());
    const auto drive = [](auto& t) -> tutti::task<> { co_await std::move(t); };
    const outcome inner = outcome_of([&] { tutti::sync_wait(world, drive(*task)); });
    if (!inner.says("parameter 0 (a)")) throw std::runtime_error(inner.text);
    whole_pass(world, r);
  });
  CHECK(o.failed == errc::aborted);  // of the whole pass: it could begin, but the communicator is gone
}

TEST_CASE("reducer: destroyed before its pass, it aborts, and the pass is inert") {
  for (const shapes* list : {&three, &half})
    for (std::size_t marked = 0; marked <= 3; ++marked) {
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        auto r = std::make_unique<reducer<world_t>>(world, *list, apart);
        if (world.rank() != 1) return whole_pass(world, *r);
        auto pass = r->begin();
        for (std::size_t i = 0; i < marked; ++i) pass.ready(i);
        r.reset();
        pass.ready(2);
      });
      CHECK(all[1].says("it has ended"));
      for (const std::size_t r : {0U, 2U})  // what has left whole may arrive before the abort does
        CHECK((all[r].failed == errc::aborted || (marked == 3 && all[r].fine())));
    }
}

TEST_CASE("reducer: begin() again before finish() is refused, and the pass goes on") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    reducer r{world, three, apart};
    auto pass = r.begin(1 + world.rank());
    for (std::size_t i = 0; i < 3; ++i) {
      const outcome o = outcome_of([&] { auto second = r.begin(); });
      if (!o.says("during a pass; finish it first")) throw std::runtime_error(o.text);
      r.gradient<float>(i)[0] = static_cast<float>(3 * world.rank());
      pass.ready(i);
    }
    tutti::sync_wait(world, pass.finish());
    if (r.gradient<float>(1)[0] != 2 || r.total_weight() != 3) throw std::runtime_error("wrong mean");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reducer: a wrong mark is named, changes nothing, and the pass goes on") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    for (const shapes* list : {&three, &half}) {
      reducer r{world, *list, apart};
      auto pass = r.begin(2);
      pass.ready(1);
      const outcome twice = outcome_of([&] { pass.ready(1); });
      const outcome beyond = outcome_of([&] { pass.ready(3); });
      if (!twice.usage || !twice.says("parameter 1 (layer.b) was marked twice")) throw std::runtime_error(twice.text);
      if (!beyond.usage || !beyond.says("no parameter 3 among 3")) throw std::runtime_error(beyond.text);
      pass.ready(2);
      pass.ready(0);
      tutti::sync_wait(world, pass.finish());
      whole_pass(world, r);
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reducer: a pass moves; what it was moved from, or has ended, is refused") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    reducer r{world, three, apart};
    auto first = r.begin();
    first.ready(2);
    auto second = std::move(first);
    std::optional<decltype(second)> third{std::move(second)};
    const outcome moved = outcome_of([&] { first.ready(1); });
    if (!moved.usage || !moved.says("moved from")) throw std::runtime_error(moved.text);
    third->ready(1);
    third->ready(0);
    tutti::sync_wait(world, third->finish());
    const outcome again = outcome_of([&] { tutti::sync_wait(world, third->finish()); });
    const outcome late = outcome_of([&] { third->ready(0); });
    if (!again.usage || !late.usage) throw std::runtime_error("accepted");
    third.reset();
    whole_pass(world, r);
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reducer: a bad weight is refused before anything is sent, and by this rank alone") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    for (const shapes* list : {&three, &half}) {
      reducer r{world, *list, apart};
      if (world.rank() == 1)
        for (const double w : {-1.0, nan, 1 / 0.0, 0x1p60, 1e-300}) {
          const outcome o = outcome_of([&] { auto pass = r.begin(w); });
          if (!o.usage || !o.says("a weight of")) throw std::runtime_error(o.text);
        }
      whole_pass(world, r);
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reducer: an exception of the hook ends the pass and aborts") {
  for (const shapes* list : {&three, &half})
    for (const bool memory : {false, true})
      for (const std::size_t at : {std::size_t{0}, std::size_t{2}}) {
        const auto all = ranks::outcomes(3, [&](world_t& world) {
          const std::size_t mine = world.rank() == 1 ? at : 99;
          reducer r{world, *list, apart, throwing_hook{mine, memory}};
          if (world.rank() != 1) return whole_pass(world, r);
          auto pass = r.begin();
          const outcome o = outcome_of([&] {
            for (std::size_t i = 0; i < 3; ++i) pass.ready(i);
            tutti::sync_wait(world, pass.finish());
          });
          if (!outcome_of([&] { pass.ready(0); }).says("it has ended")) throw std::runtime_error("pass goes on");
          auto fresh = r.begin();  // the old pass is not in its way
          throw std::runtime_error(o.text);
        });
        CHECK(all[0].failed == errc::aborted);
        CHECK(all[1].says(memory ? "bad_alloc" : "hook of bucket " + std::to_string(at)));
        CHECK(all[2].failed == errc::aborted);
      }
}

TEST_CASE("reducer: on an aborted communicator a pass ends with the cause") {
  std::barrier both{2};  // none of the world's: that would hear of the abort, too
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    for (const shapes* list : {&three, &half}) {
      reducer r{world, *list, apart};
      if (list == &half) {
        both.arrive_and_wait();
        world.abort();
      }
      whole_pass(world, r);
    }
  });
  for (const auto& o : all) {
    CHECK(o.failed == errc::aborted);
    CHECK_MESSAGE(o.says("(ranks.hpp:"), o.text);  // the call of begin(), not a line of the library
  }
}
