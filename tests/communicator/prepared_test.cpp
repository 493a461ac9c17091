#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::contains;
using ranks::expect;

template <class F>
std::string complaint(F f) {
  return ranks::words_of<tutti::usage_error>(f);
}

TEST_CASE("prepared: starts as often as wanted, and what was wrong is found when it is prepared") {
  tutti::run_threads(3, [](auto& world) {
    std::vector<float> v(50, 1), all(150), part(50);
    auto sum = world.prepare_all_reduce(v);
    auto gather = world.prepare_all_gather(v, all, {.via = tutti::algorithm::ring});
    auto scatter = world.prepare_reduce_scatter(all, part, tutti::max);
    auto from_two = world.prepare_broadcast(part, 2);
    auto moved = std::move(world);
    for (int i = 1; i < 5; ++i) {
      sum.start().wait();
      gather.start().wait();
      scatter.start().wait();
      from_two.start().wait();
      const auto wanted = static_cast<float>(std::vector<int>{1, 3, 9, 27, 81}[static_cast<std::size_t>(i)]);
      expect(v[49] == wanted && all[149] == wanted && part[0] == wanted, "round", i);
    }
    expect(contains(complaint([&] { (void)moved.prepare_broadcast(v, 3); }), "root 3"), "a root");
    expect(contains(complaint([&] { (void)moved.prepare_all_gather(v, part); }), "all_gather: in x world size"),
           "counts");
    expect(contains(complaint([&] { (void)moved.prepare_all_reduce(v, tutti::sum, {.via = tutti::algorithm::tree}); }),
                    "no algorithm tree"),
           "an algorithm");
  });
}

}  // namespace
