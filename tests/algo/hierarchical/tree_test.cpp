#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/algo/hierarchical/tree.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;

// In blocks and in turns, as many ranks on each node and not; one node, and one rank on each.
const std::vector<std::vector<int>> placements{{0},
                                               {0, 1},
                                               {0, 0, 1},
                                               {0, 1, 2},
                                               {0, 0, 0},
                                               {0, 1, 0, 1},
                                               {0, 0, 0, 1},
                                               {0, 1, 1, 0, 2},
                                               {0, 0, 0, 1, 1, 1},
                                               {2, 2, 2, 2, 2, 1, 0},
                                               {0, 1, 1, 0, 1, 0, 1, 1},
                                               {0, 1, 2, 0, 1, 2, 0, 1, 2},
                                               {0, 0, 0, 0, 1, 2, 3, 4, 4}};

TEST_CASE("hierarchical: a broadcast from every root, over every placement") {
  for (const auto& placed : placements)
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      for (const std::size_t count : std::vector<std::size_t>{0, 1, 1000, 200001})
        for (int root = 0; root < me.size(); ++root) {
          std::vector<int> v(count, me.number());
          for (std::size_t i = 0; i < count; ++i) v[i] = me.number() == root ? static_cast<int>(i) + root : -1;
          me.run([&](auto link) {
            return tutti::algo::hierarchical_broadcast(link, memory, tutti::broadcast_args{links::out(v), root});
          });
          for (std::size_t i = 0; i < count; ++i) expect(v[i] == static_cast<int>(i) + root, "element", i);
        }
    });
}

TEST_CASE("hierarchical: a broadcast so long that it goes along a chain of nodes") {
  const std::vector<int> placed{0, 0, 1, 2, 3, 4, 5, 6, 7};
  links::run(static_cast<int>(placed.size()), [&](auto& me) {
    auto memory = links::on_machines(me, placed);
    std::vector<int> v((std::size_t{8} << 20) / sizeof(int), me.number());
    expect(tutti::algo::select<tutti::broadcast_args>(
               tutti::algo::between(memory.map.nodes, v.size() * sizeof(int), 4)) == tutti::algorithm::chain,
           "it is not long enough");
    me.run([&](auto link) {
      return tutti::algo::hierarchical_broadcast(link, memory, tutti::broadcast_args{links::out(v), 1});
    });
    for (const int x : v) expect(x == 1, "a wrong element");
  });
}

TEST_CASE("hierarchical: a reduce to every root, in place and not, over every placement") {
  for (const auto& placed : placements)
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      const auto with = tutti::erase_type<double>(tutti::mean);
      for (const std::size_t count : std::vector<std::size_t>{0, 1, 1000, 70001})
        for (int root = 0; root < me.size(); ++root)
          for (const bool in_place : {false, true}) {
            std::vector<double> in(count), out(count);
            for (std::size_t i = 0; i < count; ++i) (in_place ? out : in)[i] = static_cast<double>(i) + me.number();
            const auto from = in_place ? links::in(out) : links::in(in);
            me.run([&](auto link) {
              return tutti::algo::hierarchical_reduce(link, memory,
                                                      tutti::reduce_args{from, links::out(out), with, root});
            });
            for (std::size_t i = 0; i < count; ++i) {
              if (me.number() == root) expect(out[i] == static_cast<double>(i) + (me.size() - 1) / 2.0, "element", i);
              if (!in_place) expect(in[i] == static_cast<double>(i) + me.number(), "an operand was changed");
            }
          }
    });
}

TEST_CASE("hierarchical: nobody leaves a barrier before all have come") {
  for (const auto& placed : placements) {
    std::atomic<int> come{0};
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      for (int round = 1; round <= 20; ++round) {
        ++come;
        me.run([&](auto link) { return tutti::algo::hierarchical_barrier(link, memory); });
        expect(come >= round * me.size(), "too early");
        me.run([&](auto link) { return tutti::algo::hierarchical_barrier(link, memory); });
      }
    });
  }
}

}  // namespace
