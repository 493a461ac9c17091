#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/message/recursive_doubling.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::append;
using links::expect;
using links::word;

TEST_CASE("recursive_doubling: operands keep the order of the ranks, for every number of them") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 13}, {4, 7}))
    links::run(size, [](auto& me) {
      for (const std::size_t count : std::vector<std::size_t>{0, 1, 3, 1000, 5000}) {
        const std::vector<word> in(count, links::letter(me.number()));
        std::vector<word> out(count);
        auto with = tutti::erase_type<word>(append{});
        // Also of sums, although nothing shows but of NaNs, and of complex products where they are contracted: both
        // partners fold the same elements.
        if (count == 3) with.kind = tutti::reduction_kind::sum;
        me.run([&](auto link) {
          return tutti::algo::recursive_doubling_all_reduce(
              link, tutti::all_reduce_args{links::in(in), links::out(out), with});
        });
        for (const word& w : out) expect(w == links::spelled(0, me.size()), "the order on rank", me.number());
        for (const word& w : in) expect(w == links::letter(me.number()), "the input was changed");
      }
    });
}

TEST_CASE("recursive_doubling: in place, and a mean that is divided once") {
  for (const int size : {2, 3, 5})
    links::run(size, [](auto& me) {
      std::vector<double> v(100, me.number() + 1.0);
      const auto with = tutti::erase_type<double>(tutti::mean);
      me.run([&](auto link) {
        return tutti::algo::recursive_doubling_all_reduce(link,
                                                          tutti::all_reduce_args{links::in(v), links::out(v), with});
      });
      for (const double x : v) expect(x == (me.size() + 1) / 2.0, "the mean became", x);
    });
}

}  // namespace
