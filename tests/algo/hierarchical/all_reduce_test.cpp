#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/hierarchical/all_reduce.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;

// As many ranks on each node, in blocks and in turns; not as many; one node, and one rank on each.
const auto placements = tutti_test::grid<std::vector<int>>({{0, 0, 1, 1},
                                                            {0, 1, 0, 1},
                                                            {0, 1, 1, 0},
                                                            {0, 0, 0, 1},
                                                            {0, 1, 1, 0, 2},
                                                            {0, 0, 0, 1, 1, 1},
                                                            {0, 1, 2, 0, 1, 2, 0, 1, 2},
                                                            {0, 0, 0},
                                                            {0, 1, 2},
                                                            {0},
                                                            {0, 0, 0, 0, 1}},
                                                           {{0, 0, 1, 1}, {0, 1, 1, 0, 2}, {0, 1, 2}});

TEST_CASE("hierarchical: an all_reduce over every placement, in place and not") {
  for (const auto& placed : placements)
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      const auto with = tutti::erase_type<double>(tutti::mean);
      for (const std::size_t count : std::vector<std::size_t>{0, 1, 2, 5, 1000, 150001})
        for (const bool in_place : {false, true}) {
          std::vector<double> in(count), out(count);
          for (std::size_t i = 0; i < count; ++i) (in_place ? out : in)[i] = static_cast<double>(i) + me.number();
          const auto from = in_place ? links::in(out) : links::in(in);
          me.run([&](auto link) {
            return tutti::algo::hierarchical_all_reduce(link, memory,
                                                        tutti::all_reduce_args{from, links::out(out), with});
          });
          for (std::size_t i = 0; i < count; ++i)
            expect(out[i] == static_cast<double>(i) + (me.size() - 1) / 2.0, "element", i);
        }
    });
}

TEST_CASE("hierarchical: segments of a large all_reduce follow each other, with a shorter one at the end") {
  for (const auto& placed : std::vector<std::vector<int>>{{0, 1, 0, 1}, {0, 1, 1, 0, 2}, {0, 0, 0, 1}})
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      const auto with = tutti::erase_type<float>(tutti::mean);
      constexpr std::size_t half = std::size_t{1} << 17;  // MiB of floats
      for (const std::size_t count : {4 * half, 8 * half, 8 * half + 1, 13 * half - 3}) {
        std::vector<float> in(count), out(count);
        for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1021) + static_cast<float>(me.number());
        me.run([&](auto link) {
          return tutti::algo::hierarchical_all_reduce(link, memory,
                                                      tutti::all_reduce_args{links::in(in), links::out(out), with});
        });
        const float mean = static_cast<float>(me.size() - 1) / 2;
        std::size_t wrong = 0, first = count;
        for (std::size_t i = count; i-- > 0;)
          if (out[i] != static_cast<float>(i % 1021) + mean) ++wrong, first = i;
        expect(wrong == 0, "elements from", first);
      }
    });
}

TEST_CASE("hierarchical: all ranks end with the same bits") {
  for (const auto& placed : placements) {
    std::vector<std::vector<float>> results(placed.size());
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      std::vector<float> v(1001);
      for (std::size_t i = 0; i < v.size(); ++i)
        v[i] = 1.0F / static_cast<float>(i + 3 * static_cast<std::size_t>(me.number()) + 1);
      const auto with = tutti::erase_type<float>(tutti::sum);
      me.run([&](auto link) {
        return tutti::algo::hierarchical_all_reduce(link, memory,
                                                    tutti::all_reduce_args{links::in(v), links::out(v), with});
      });
      results[static_cast<std::size_t>(me.number())] = v;
    });
    for (const auto& r : results) CHECK(r == results[0]);
  }
}

}  // namespace
