#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator/base.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::contains;
using ranks::expect;
using namespace std::chrono_literals;

static_assert(tutti::detail::communicator_base<tutti::threads>::inline_path);
static_assert(std::is_same_v<ranks::world::started<tutti::barrier_args>, tutti::op>);

TEST_CASE("base: a group's ranks have numbers in the world, and threads are a machine's processes") {
  tutti::run_threads(5, [](ranks::world& world) {
    auto group = world.split(world.rank() % 2, -world.rank());
    for (int r = 0; r < group.size(); ++r)
      expect(group.world_rank(r) == world.rank() % 2 + 2 * (group.size() - 1 - r), "the world rank of", r);
    expect(group.world_rank(group.rank()) == world.rank(), "the own one");
    expect(world.world_rank(3) == 3, "the world's");
    for (const int none : {-1, group.size()})
      expect(ranks::words_of<tutti::usage_error>([&] { (void)group.world_rank(none); }) ==
                 "world_rank on rank " + std::to_string(world.rank()) + ": rank " + std::to_string(none) +
                     " is not a rank of this communicator of " + std::to_string(group.size()),
             "no rank");
    expect(group.local_rank() == group.rank() && group.local_size() == group.size() && group.node_rank() == 0,
           "its place on the machine");
    expect(&group.engine() == &world.engine(), "two engines");
  });
}

TEST_CASE("base: a deadline lies in the future, and one that is refused changes nothing") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0, std::chrono::seconds(9));
  for (const auto wrong : {tutti::duration{0}, tutti::duration{-1}})
    CHECK(contains(ranks::words_of<tutti::usage_error>([&] { world.timeout(wrong); }), "must lie in the future"));
  CHECK(world.timeout() == std::chrono::seconds(9));
}

TEST_CASE("base: a rank aborts what it has, and what was moved away is not its own any more") {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  auto first = tutti::join(hub, 0);
  const auto second = std::move(first);
  first.abort();  // NOLINT: it may be called
  CHECK(second.backend().failure().ok());
  second.abort();
  second.abort();
  CHECK(second.backend().failure().code == tutti::errc::aborted);
  CHECK(second.backend().failure().peer == 0);
}

TEST_CASE("base: the calls of one that was moved away are refused") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(2), 0);
  const auto home = std::move(world);
  std::vector<int> v(4);
  const auto refused = [](auto call) {
    CHECK(ranks::words_of<tutti::usage_error>(call) ==
          "this communicator was moved away or closed; call the one that it was moved to");
  };
  refused([&] { (void)world.rank(); });  // NOLINT: it may be called
  refused([&] { (void)world.size(); });
  refused([&] { (void)world.world_rank(0); });
  refused([&] { (void)world.local_rank(); });
  refused([&] { (void)world.local_size(); });
  refused([&] { (void)world.engine(); });
  refused([&] { (void)world.backend(); });
  refused([&] { (void)world.timeout(); });
  refused([&] { world.timeout(1s); });
  refused([&] { (void)world.split(0); });
  refused([&] { (void)world.allocate<float>(5); });
  refused([&] { (void)world.prepare().barrier(); });
  refused([&] { world.barrier().wait(); });
  refused([&] { world.all_reduce(v).wait(); });
  refused([&] { world.all_reduce(5).wait(); });
  refused([&] { world.broadcast(v, 0).wait(); });
  refused([&] { world.all_to_all(v, v).wait(); });
  refused([&] { world.scan(v).wait(); });
  refused([&] { world.send(v, 1).wait(); });
  refused([&] { world.recv_any(v).wait(); });
  CHECK(home.rank() == 0);
}

TEST_CASE("base: one that is assigned to ends what it had in flight, and takes over what the other has") {
  const auto left = std::make_shared<tutti::threads_hub>(2), right = std::make_shared<tutti::threads_hub>(2);
  auto world = tutti::join(left, 0), other = tutti::join(right, 1);
  std::vector<int> v(3), w(3);
  tutti::op ended = world.all_reduce(v), goes_on = other.all_reduce(w);
  world = std::move(other);
  CHECK(tutti::nothrow(std::move(ended)).wait().code == tutti::errc::aborted);
  CHECK(world.rank() == 1);
  CHECK_FALSE(goes_on.done());
  auto peer = tutti::join(right, 0);
  std::vector<int> x{1, 2, 3};
  tutti::op last = peer.all_reduce(x);
  while (!last.done() || !goes_on.done()) {
    peer.engine().poll();
    world.engine().poll();
  }
  CHECK(w == x);
}

}  // namespace
