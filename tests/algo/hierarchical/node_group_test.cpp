#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <tutti/algo/collectives.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algo::node_group;

const std::vector<int> placed{0, 1, 0, 1, 2};

TEST_CASE("node memory: the ranks of a node are a group with numbers of their own") {
  links::run(static_cast<int>(placed.size()), [](auto& me) {
    node_group memory = links::on_machines(me, placed);
    const int place[] = {0, 0, 1, 1, 0}, ranks[] = {2, 2, 2, 2, 1};
    me.run([&](auto link) {
      const auto inside = memory.inside(link);
      expect(inside.rank() == place[me.number()] && inside.size() == ranks[me.number()], "another group");
      expect(memory.size() == inside.size(), "another size");
      expect(inside.members().world_rank(inside.rank()) == me.number(), "another rank of the world");
      expect(inside.sequence() == 0 && inside.call() == 0, "a call of its own");
      return [](auto) -> tutti::routine { co_return; }(link);
    });
  });
}

/// An all_reduce of one number inside of each node, on one side.
template <class Link>
tutti::routine sum_inside(Link link, node_group& memory, node_group::side& s, int& v,
                          tutti::algo::call_signature call) {
  co_await memory.begin(link, s, call);
  const std::span<int> one{&v, 1};
  tutti::all_reduce_args a{tutti::erase_type(std::span<const int>{one}), tutti::erase_type(one),
                           tutti::erase_type<int>(tutti::sum)};
  if (memory.size() > 1) co_await tutti::algo::direct_small(memory.inside(link), s.place, a);
}

TEST_CASE("node memory: both sides are shm groups of the node's ranks") {
  links::run(static_cast<int>(placed.size()), [](auto& me) {
    node_group memory = links::on_machines(me, placed);
    const int sums[] = {2, 4, 2, 4, 4};
    for (int round = 0; round < 20; ++round)
      for (node_group::side* s : {&memory.up, &memory.down}) {
        int v = me.number();
        me.run([&](auto link) {
          return sum_inside(link, memory, *s, v, tutti::algo::call_of(link.sequence(), tutti::barrier_args{}));
        });
        expect(v == sums[me.number()], "sum " + std::to_string(v));
      }
    int groups = 0;
    memory.for_each_shm_group([&](const tutti::algo::shm_group& shm) {
      ++groups;
      expect(shm.is_open() == (memory.size() > 1), "a rank alone needs no shm group");
    });
    expect(groups == 2, "not all shm groups");
  });
}

TEST_CASE("node memory: what ranks compare is the whole call") {
  links::run(2, [](auto& me) {
    node_group memory = links::on_machines(me, {0, 0});
    int v = 1;
    tutti::broadcast_args whole;
    whole.root = me.number();  // the parts are alike
    try {
      me.run([&](auto link) {
        return sum_inside(link, memory, memory.up, v, tutti::algo::call_of(link.sequence(), whole));
      });
      FAIL("nobody was told");
    } catch (const tutti::error& e) {
      CHECK(e.kind() == tutti::errc::mismatch);
    }
  });
}

}  // namespace
