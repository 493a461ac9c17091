#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <tutti/algo/hierarchical/blocks.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;

// As many ranks on each node, in blocks, in turns, and in neither; nodes in another order than their ranks.
const auto placements = tutti_test::grid<std::vector<int>>({{0, 0, 1, 1},
                                                            {0, 1, 0, 1},
                                                            {0, 1, 1, 0},
                                                            {1, 1, 0, 0},
                                                            {0, 0, 0, 1, 1, 1},
                                                            {0, 1, 2, 2, 1, 0},
                                                            {2, 2, 0, 0, 1, 1},
                                                            {0, 0, 1, 1, 2, 2, 3, 3},
                                                            {0, 1, 2, 0, 1, 2, 0, 1, 2}},
                                                           {{0, 0, 1, 1}, {0, 1, 2, 2, 1, 0}});
// Elements of a block: nothing, a few, and several segments, the last of which is shorter.
const std::vector<std::size_t> counts{0, 1, 3, 1000, 2 * (std::size_t{1} << 17) + 5};

double element(int rank, int block, std::size_t i) { return 1000.0 * rank + 100.0 * block + static_cast<double>(i); }

template <class T>
std::vector<T> block_of(const std::vector<T>& all, int b, std::size_t count) {
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b) * count);
  return {from, from + static_cast<std::ptrdiff_t>(count)};
}

TEST_CASE("hierarchical: an all_gather over every even placement, in place and not") {
  for (const auto& placed : placements)
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true}) {
          std::vector<double> own(count), all(count * placed.size(), -1);
          const std::size_t begin = count * static_cast<std::size_t>(me.number());
          for (std::size_t i = 0; i < count; ++i) (in_place ? all[begin + i] : own[i]) = element(me.number(), 0, i);
          auto in = in_place ? links::in(all) : links::in(own);
          in.count = count;
          if (in_place) in.data = all.data() + begin;
          me.run([&](auto link) {
            return tutti::algo::hierarchical_all_gather(link, memory, tutti::all_gather_args{in, links::out(all)});
          });
          std::size_t wrong = 0;
          for (int r = 0; r < me.size(); ++r) {
            const auto got = block_of(all, r, count);
            for (std::size_t i = 0; i < count; ++i) wrong += got[i] != element(r, 0, i);
          }
          expect(wrong == 0, "elements wrong with blocks of", count);
        }
    });
}

TEST_CASE("hierarchical: a reduce_scatter over every even placement, in place and not") {
  for (const auto& placed : placements)
    links::run(static_cast<int>(placed.size()), [&](auto& me) {
      auto memory = links::on_machines(me, placed);
      const auto with = tutti::erase_type<double>(tutti::mean);
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true}) {
          std::vector<double> in, out(count);
          for (int b = 0; b < me.size(); ++b)
            for (std::size_t i = 0; i < count; ++i) in.push_back(element(me.number(), b, i));
          auto result = links::out(out);
          if (in_place) result.data = in.data() + count * static_cast<std::size_t>(me.number());
          me.run([&](auto link) {
            return tutti::algo::hierarchical_reduce_scatter(link, memory,
                                                            tutti::reduce_scatter_args{links::in(in), result, with});
          });
          if (in_place) out = block_of(in, me.number(), count);
          const double mean_rank = (me.size() - 1) / 2.0;
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < count; ++i) wrong += out[i] != 1000.0 * mean_rank + element(0, me.number(), i);
          expect(wrong == 0, "elements wrong with blocks of", count);
        }
    });
}

TEST_CASE("hierarchical: blocks of calls that follow one another do not meet, whoever is late") {
  links::run(4, [&](auto& me) {
    if (me.number() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto memory = links::on_machines(me, {0, 1, 1, 0});
    const auto with = tutti::erase_type<int>(tutti::sum);
    constexpr std::size_t count = 3;
    std::vector<std::vector<int>> own, all, in, out;
    std::vector<tutti::op> calls;
    for (int k = 0; k < 20; ++k) {
      own.emplace_back(count, 10 * k + me.number());
      all.emplace_back(count * 4);
      in.emplace_back(count * 4, k + me.number());
      out.emplace_back(count);
    }
    for (std::size_t k = 0; k < own.size(); ++k) {
      calls.push_back(me.start([&, k](auto link) {
        return tutti::algo::hierarchical_all_gather(link, memory,
                                                    tutti::all_gather_args{links::in(own[k]), links::out(all[k])});
      }));
      calls.push_back(me.start([&, k](auto link) {
        return tutti::algo::hierarchical_reduce_scatter(
            link, memory, tutti::reduce_scatter_args{links::in(in[k]), links::out(out[k]), with});
      }));
    }
    for (auto& c : calls) c.wait();
    for (int k = 0; k < 20; ++k)
      for (std::size_t i = 0; i < count * 4; ++i) {
        const auto at = static_cast<std::size_t>(k);
        expect(all[at][i] == 10 * k + static_cast<int>(i / count), "a block of call", at);
        expect(out[at][i % count] == 4 * k + 6, "a sum of call", at);
      }
  });
}

struct counted_sum {
  std::atomic<int>* calls;
  int operator()(int a, int b) const {
    ++*calls;
    return a + b;
  }
};

TEST_CASE("hierarchical: the next reduce_scatter meets while the sums of the one before are on their way") {
  std::atomic<int> folded{0};
  links::run(4, [&](auto& me) {
    auto memory = links::on_machines(me, {0, 0, 1, 1});
    // Machine 1 comes when node 0 folds what is the second call's.
    const auto limit = tutti::clock::now() + std::chrono::seconds(20);
    while (me.number() > 1 && folded == 0 && tutti::clock::now() < limit) std::this_thread::yield();
    expect(me.number() < 2 || folded != 0, "node 0 waits for node 1");
    const std::vector<int> in{1, 2, 3, 4};
    std::vector<int> first(1), second(1);
    const auto start = [&](std::vector<int>& out, const tutti::reduction& with) {
      return me.start([&, with](auto link) {
        return tutti::algo::hierarchical_reduce_scatter(
            link, memory, tutti::reduce_scatter_args{links::in(in), links::out(out), with});
      });
    };
    tutti::op a = start(first, tutti::erase_type<int>(tutti::sum));
    tutti::op b = start(second, tutti::erase_type<int>(counted_sum{&folded}));
    b.wait();
    a.wait();
    expect(first[0] == 4 * (me.number() + 1) && second == first, "sums of rank", static_cast<std::size_t>(me.number()));
  });
}

TEST_CASE("hierarchical: a reduce_scatter takes operands node by node, from its own on downwards") {
  links::run(6, [](auto& me) {
    auto memory = links::on_machines(me, {0, 1, 2, 0, 1, 2});
    std::vector<links::word> in(6, links::letter(me.number())), out(1);
    const auto with = tutti::erase_type<links::word>(links::append{});
    me.run([&](auto link) {
      return tutti::algo::hierarchical_reduce_scatter(link, memory,
                                                      tutti::reduce_scatter_args{links::in(in), links::out(out), with});
    });
    links::word expected{};
    for (int k = 3; k > 0; --k)
      for (const int r : {(me.number() + k) % 3, (me.number() + k) % 3 + 3})
        expected = links::append{}(expected, links::letter(r));
    expect(out[0] == expected, "the word of rank", static_cast<std::size_t>(me.number()));
  });
}

}  // namespace
