#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/backend/composed.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

namespace {

using tutti::algorithm;

static_assert(tutti::backend<tutti::threads> && tutti::backend<tutti::sim>);
static_assert(tutti::supports<tutti::threads, tutti::all_to_all_v_args> &&
              tutti::supports<tutti::threads, tutti::recv_any_args>);
static_assert(!tutti::supports<tutti::threads, std::string>);

TEST_CASE("composed: how ranks reach each other decides what can be asked for, and what automatic means") {
  std::vector<std::string> said;
  const auto program = [&](auto& world) {
    auto& b = world.backend();
    std::vector<float> v(10);
    tutti::all_reduce_args a{tutti::erase_type(std::span<const float>(v)), tutti::erase_type(std::span<float>(v)),
                             tutti::erase_type<float>(tutti::sum)};
    if (world.rank() == 0)
      said.push_back(std::string(tutti::algo::name(b.links())) +
                     (b.template can<tutti::all_reduce_args>(algorithm::direct, 4) ? ", direct, " : ", not direct, ") +
                     tutti::name(b.chosen(a)));
    a.via = algorithm::ring;
    if (b.chosen(a) != algorithm::ring) throw std::runtime_error("what was asked for was replaced");
  };
  tutti::run_sim(3, {.memory = tutti::sim_memory::shared}, program);
  tutti::run_sim(3, {.memory = tutti::sim_memory::separate}, program);
  CHECK(said == std::vector<std::string>{"memory, direct, direct", "messages, not direct, recursive_doubling"});
}

TEST_CASE("composed: a group names failures by the numbers of the world") {
  tutti::run_threads(4, [](auto& world) {
    auto group = world.split(world.rank() % 2, -world.rank());
    auto& b = group.backend();
    if (b.size() != 2 || b.world_rank() != world.rank() || b.members().world_rank(b.rank()) != world.rank())
      throw std::runtime_error("the group's numbers");
    if (b.rank() != (world.rank() < 2 ? 1 : 0)) throw std::runtime_error("the group's order");
  });
}

TEST_CASE("composed: a world that has failed starts nothing more") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  CHECK(alone.backend().failure().ok());
  alone.abort();
  CHECK(alone.backend().failure().code == tutti::errc::aborted);
  std::vector<int> v(3), w(3);
  CHECK(tutti::nothrow(alone.all_reduce(v)).wait().code == tutti::errc::aborted);
  CHECK(tutti::nothrow(alone.all_gather(v, w)).wait().code == tutti::errc::aborted);
  CHECK(tutti::nothrow(alone.scan(v, w)).wait().code == tutti::errc::aborted);
}

}  // namespace
