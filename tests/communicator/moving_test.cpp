#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::expect;

TEST_CASE("moving: a text takes the length of the root's, longer and shorter") {
  tutti::run_threads(3, [](auto& world) {
    for (const std::size_t length : {0U, 5U, 100000U, 3U}) {
      std::string text(world.rank() == 2 ? length : 20, world.rank() == 2 ? 'y' : 'n');
      world.broadcast(text, 2).wait();
      expect(text == std::string(length, 'y'), "a text of", length);
    }
  });
}

TEST_CASE("moving: a value comes back, and the argument stays as it was") {
  tutti::run_threads(3, [](auto& world) {
    const double mine = world.rank() + 0.5;
    expect(world.broadcast(mine, 1).wait() == 1.5 && mine == world.rank() + 0.5, "a value");
  });
}

TEST_CASE("moving: blocks are gathered in rank order, the own one from its place or from elsewhere") {
  tutti::run_threads(3, [](auto& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    std::vector<int> own{world.rank(), world.rank() + 10}, all(6, -1);
    const std::vector<int> wanted{0, 10, 1, 11, 2, 12};
    world.all_gather(own, all).wait();
    expect(all == wanted, "apart");
    all.assign(6, -1);
    all[2 * r] = world.rank(), all[2 * r + 1] = world.rank() + 10;
    world.all_gather(std::span{all}.subspan(2 * r, 2), all).wait();
    expect(all == wanted, "in place");
  });
}

TEST_CASE("moving: a world of one has what it gathers") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::vector<int> in{4, 5}, out(2);
  alone.all_gather(in, out).wait();
  CHECK(out == in);
  CHECK(alone.broadcast(7, 0).wait() == 7);
}

}  // namespace
