#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/pass/usage.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/ranks.hpp"

using tutti::dtype;

TEST_CASE("usage: gradients that nobody uses get back what they held, to the byte") {
  tutti::run_threads(1, [](tutti::communicator<tutti::threads>& world) {
    const std::vector<tutti::grad::parameter_shape> list{
        {"a", 5, dtype::f32}, {"b", 3, dtype::f64}, {"c", 7, dtype::bf16}, {"d", 2, dtype::f32}};
    const tutti::grad::arena memory{list, tutti::grad::make_plan(list),
                                    [&](std::size_t n) { return world.allocate<std::byte>(n); }};
    const auto fill = [&](float with) {
      for (std::size_t i = 0; i < 4; ++i)
        tutti::grad::visit_gradient(list[i].type, [&]<class T>() {
          for (T& x : memory.gradient<T>(i)) x = T(with);
        });
    };
    const auto value = [&](std::size_t i) {
      return tutti::grad::visit_gradient(list[i].type,
                                         [&]<class T>() { return static_cast<float>(memory.gradient<T>(i).back()); });
    };
    tutti::grad::usage used{4};
    for (int pass = 0; pass < 2; ++pass) {
      used.clear();
      fill(9);
      used.use(3);
      used.keep(0, memory.gradient<float>(0));
      used.keep(1, memory.gradient<double>(1));
      used.keep(2, memory.gradient<tutti::bfloat16>(2));
      if (value(0) != 0 || value(1) != 0 || value(2) != 0 || value(3) != 9) throw std::logic_error("zeros");
      std::vector<float> map(16);
      used.put(1, std::span{map});
      if (map[0] != 0 || map[1] != 0 || map[2] != 0 || map[3] != 1) throw std::logic_error("map");
      map[1] += 3;  // of others
      fill(0.5f);
      used.take(std::span<const float>{map});
      used.restore(memory);
      if (value(0) != 9 || value(1) != 0.5f || value(2) != 9 || value(3) != 0.5f) throw std::logic_error("restored");
      if (used.used_anywhere(0) || !used.used_anywhere(1) || used.used_anywhere(2) || !used.used_anywhere(3) ||
          used.used_here(1) || !used.used_here(3))
        throw std::logic_error("who");
    }
  });
}

namespace {
using ranks::expect;
using tutti::grad::graph;
using tutti::grad::reducer;
using tutti::grad::step;
using tutti::grad::unused_parameters;
using world_t = ranks::communicator;
const std::vector<tutti::grad::parameter_shape> four{
    {"a", 3, dtype::f32}, {"b", 4, dtype::f32}, {"c", 5, dtype::f32}, {"d", 200, dtype::f32}};

/// What travels in the last bucket's tail.
struct tail_hook {
  std::size_t* bytes;
  template <class Comm, class T>
  auto operator()(Comm& world, tutti::grad::bucket_view<T> b) const {
    *bytes = b.tail().size_bytes();
    return world.all_reduce(b.elements);
  }
};

/// Marks what a rank uses: the first, and one of the next two. Nobody uses the last.
template <class Reducer, class Pass>
void use(const world_t& world, Reducer& r, Pass& pass) {
  for (const std::size_t i : {std::size_t{0}, std::size_t(1 + world.rank() % 2)}) {
    for (float& x : r.template gradient<float>(i)) x = 6;
    pass.ready(i);
  }
}
}  // namespace

TEST_CASE("usage: of a fixed graph the first pass says what is used; later ones need no word about the rest") {
  for (const auto how : {unused_parameters::tracked, unused_parameters::zero}) {
    const auto all = ranks::outcomes(3, [&](world_t& world) {
      std::size_t tail = 0;
      reducer r{world, four, {.unused = how, .graph = graph::fixed}, tail_hook{&tail}};
      const bool tracked = how == unused_parameters::tracked;
      for (int round = 0; round < 5; ++round) {
        for (float& x : r.gradient<float>(3)) x = 42;
        // In the first pass one rank cannot go on, and in the second one has no samples: they know no more than before.
        const bool idle = round == 1 && world.rank() == 2;
        auto pass = r.begin(idle ? 0 : 2);
        if (round == 0 && world.rank() == 0)
          pass.skip(step::skip_failure);
        else if (!idle)
          use(world, r, pass);
        if (round < 2 || (round == 2 && world.rank() == 2)) pass.rest_unused();
        expect(tutti::sync_wait(world, pass.finish()) == (round == 0 ? step::skip_failure : step::apply), "step");
        expect(tail == (tracked && round < 3 ? 128 : 64),
               "a map of " + std::to_string(tail) + " bytes in round " + std::to_string(round));
        if (round == 0) continue;
        expect(r.gradient<float>(0)[1] == 6, "used by all");
        expect(r.gradient<float>(2)[1] == (round == 1 ? 3.0f : 2.0f), "used by one of those with samples");
        expect(r.used(3) == !tracked && r.gradient<float>(3)[100] == (tracked ? 42 : 0), "used by none");
      }
      auto idle = r.begin(0);
      idle.rest_unused();  // without samples nothing has to be used
      (void)tutti::sync_wait(world, idle.finish());
    });
    for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  }
}

TEST_CASE("usage: what differs from a fixed graph is refused by name, and the pass goes on") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    reducer r{world, four, {.graph = graph::fixed}};
    auto first = r.begin();
    use(world, r, first);
    first.rest_unused();
    (void)tutti::sync_wait(world, first.finish());
    auto pass = r.begin();
    const auto more = ranks::outcome_of([&] { pass.ready(3); });
    expect(more.usage && more.says("ready: parameter 3 (d) was not used in the first pass"), more.text);
    const auto less = ranks::outcome_of([&] { pass.unused(0); });
    expect(less.usage && less.says("unused: parameter 0 (a) was used in the first pass"), less.text);
    const auto rest = ranks::outcome_of([&] { pass.rest_unused(); });
    expect(rest.usage && rest.says("parameter 0 (a)"), rest.text);
    pass.unused(3);  // as is known
    use(world, r, pass);
    expect(tutti::sync_wait(world, pass.finish()) == step::apply, "step");
    const auto index = ranks::outcome_of([&] { (void)r.used(4); });
    expect(index.usage && index.says("used: there is no parameter 4 among 4"), index.text);
    auto short_one = r.begin();
    short_one.ready(0);
    (void)tutti::sync_wait(world, short_one.finish());
  });
  for (const auto& o : all) CHECK_MESSAGE((o.says("was never marked") || o.failed == tutti::errc::aborted), o.text);
}
