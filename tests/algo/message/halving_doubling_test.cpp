#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/message/halving_doubling.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::append;
using links::expect;
using links::word;

// Fewer elements than ranks, and parts of several chunks.
const std::vector<std::size_t> counts{0, 1, 3, 1000, 70001};

TEST_CASE("halving_doubling: operands keep the order of the ranks, for every number of them") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 13}, {4, 7}))
    links::run(size, [](auto& me) {
      for (const std::size_t count : counts) {
        const std::vector<word> in(count, links::letter(me.number()));
        std::vector<word> out(count);
        const auto with = tutti::erase_type<word>(append{});
        me.run([&](auto link) {
          return tutti::algo::halving_doubling_all_reduce(link,
                                                          tutti::all_reduce_args{links::in(in), links::out(out), with});
        });
        for (const word& w : out) expect(w == links::spelled(0, me.size()), "the order on rank", me.number());
        for (const word& w : in) expect(w == links::letter(me.number()), "the input was changed");
      }
    });
}

TEST_CASE("halving_doubling: in place, elements in their places, and a mean that is divided once") {
  for (const int size : {1, 2, 3, 6})
    links::run(size, [](auto& me) {
      std::vector<double> v(100001);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i) + me.number();
      const auto with = tutti::erase_type<double>(tutti::mean);
      me.run([&](auto link) {
        return tutti::algo::halving_doubling_all_reduce(link,
                                                        tutti::all_reduce_args{links::in(v), links::out(v), with});
      });
      for (std::size_t i = 0; i < v.size(); ++i)
        expect(v[i] == static_cast<double>(i) + (me.size() - 1) / 2.0, "element", i);
    });
}

TEST_CASE("halving_doubling: ranks that disagree about the size fail, all of them") {
  std::vector<tutti::errc> seen(4);
  links::run(4, [&](auto& me) {
    std::vector<int> v(me.number() == 1 ? 100 : 10);
    const auto with = tutti::erase_type<int>(tutti::sum);
    auto running = me.start([&](auto link) {
      return tutti::algo::halving_doubling_all_reduce(link, tutti::all_reduce_args{links::in(v), links::out(v), with});
    });
    seen[static_cast<std::size_t>(me.number())] = tutti::nothrow(std::move(running)).wait().code;
  });
  for (const auto code : seen) CHECK(code == tutti::errc::mismatch);
}

}  // namespace
