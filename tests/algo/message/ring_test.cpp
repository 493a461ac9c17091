#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/ring.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::append;
using links::expect;
using links::word;

// Whole messages, messages of several chunks, more chunks than travel at a time, and fewer elements than ranks. With
// 65537 words over four ranks only the longest block takes a second chunk. The last makes long chunks of two ranks'
// blocks.
const std::vector<std::size_t> counts{0, 1, 2, 5, 1000, 65537, 150000, 270001};

// Two ranks always fold rank 0 first.
int first_of(int block, int size) { return size == 2 ? 0 : block + 1; }

TEST_CASE("ring: block b of an all_reduce is folded from rank b + 1 around to rank b") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 4, 7, 9}, {2, 4}))
    links::run(size, [](auto& me) {
      for (const std::size_t count : counts) {
        std::vector<word> v(count, links::letter(me.number()));
        const auto with = tutti::erase_type<word>(append{});
        me.run([&](auto link) {
          return tutti::algo::ring_all_reduce(link, tutti::all_reduce_args{links::in(v), links::out(v), with});
        });
        const tutti::algo::blocks cut{count, static_cast<std::size_t>(me.size())};
        for (std::size_t b = 0; b < cut.parts; ++b) {
          const auto spelled = links::spelled(first_of(static_cast<int>(b), me.size()), me.size());
          for (std::size_t i = cut.begin(b); i < cut.begin(b) + cut.size(b); ++i)
            expect(v[i] == spelled, "folded in another order: element", i);
        }
      }
    });
}

TEST_CASE("ring: a reduce_scatter folds block b in the same order, and leaves its input alone") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5}, {3}))
    links::run(size, [](auto& me) {
      for (const std::size_t count : counts) {
        const std::vector<word> in(count * static_cast<std::size_t>(me.size()), links::letter(me.number()));
        std::vector<word> out(count);
        const auto with = tutti::erase_type<word>(append{});
        me.run([&](auto link) {
          return tutti::algo::ring_reduce_scatter(link,
                                                  tutti::reduce_scatter_args{links::in(in), links::out(out), with});
        });
        for (const word& w : out)
          expect(w == links::spelled(first_of(me.number(), me.size()), me.size()), "another order");
        for (const word& w : in) expect(w == links::letter(me.number()), "the input was changed");
      }
    });
}

TEST_CASE("ring: an all_gather passes every block on") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5}, {3}))
    links::run(size, [](auto& me) {
      for (const std::size_t count : counts) {
        std::vector<std::int64_t> in(count), out(count * static_cast<std::size_t>(me.size()), -1);
        for (std::size_t i = 0; i < count; ++i) in[i] = me.number() * 1000003 + static_cast<std::int64_t>(i);
        me.run([&](auto link) {
          return tutti::algo::ring_all_gather(link, tutti::all_gather_args{links::in(in), links::out(out)});
        });
        for (std::size_t i = 0; i < out.size(); ++i)
          expect(out[i] == static_cast<std::int64_t>(i / count * 1000003 + i % count), "element", i);
      }
    });
}

TEST_CASE("ring: a mean is divided once, after the sum") {
  links::run(3, [](auto& me) {
    std::vector<int> v(10, me.number() == 0 ? 7 : 0);
    const auto with = tutti::erase_type<int>(tutti::mean);
    me.run([&](auto link) {
      return tutti::algo::ring_all_reduce(link, tutti::all_reduce_args{links::in(v), links::out(v), with});
    });
    for (const int x : v) expect(x == 2, "the mean of 7, 0 and 0 became", x);
  });
}

struct alignas(64) wide {
  double link[8];
};

TEST_CASE("ring: elements that want more alignment than the heap gives") {
  links::run(3, [](auto& me) {
    std::vector<wide> v(11);
    for (auto& w : v)
      for (double& x : w.link) x = me.number();
    const auto with = tutti::erase_type<wide>([](const wide& a, const wide& b) {
      wide sum{};
      for (std::size_t i = 0; i < 8; ++i) sum.link[i] = a.link[i] + b.link[i];
      return sum;
    });
    me.run([&](auto link) {
      return tutti::algo::ring_all_reduce(link, tutti::all_reduce_args{links::in(v), links::out(v), with});
    });
    for (const wide& w : v)
      for (const double x : w.link) expect(x == 3, "another sum");
  });
}

TEST_CASE("ring: ranks that disagree about the size fail, all of them") {
  std::vector<tutti::errc> seen(3);
  links::run(3, [&](auto& me) {
    std::vector<int> v(me.number() == 1 ? 100 : 10);
    const auto with = tutti::erase_type<int>(tutti::sum);
    auto running = me.start([&](auto link) {
      return tutti::algo::ring_all_reduce(link, tutti::all_reduce_args{links::in(v), links::out(v), with});
    });
    seen[static_cast<std::size_t>(me.number())] = tutti::nothrow(std::move(running)).wait().code;
  });
  for (const auto code : seen) CHECK(code == tutti::errc::mismatch);
}

}  // namespace
