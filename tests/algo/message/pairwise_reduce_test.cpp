#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/message/pairwise_reduce.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>

namespace {

using links::append;
using links::expect;
using links::word;

// Fewer elements than ranks, and blocks of several segments.
const std::vector<std::size_t> counts{0, 1, 3, 1000, 300001};

TEST_CASE("pairwise_reduce: an all_reduce takes the ranks in their order, for every number of them") {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13})
    links::run(size, [](auto& me) {
      for (const std::size_t count : counts)
        for (const bool in_place : {true, false}) {
          std::vector<word> in(count, links::letter(me.number())), out(in_place ? 0 : count);
          auto& result = in_place ? in : out;
          const tutti::all_reduce_args a{links::in(in), links::out(result), tutti::erase_type<word>(append{})};
          me.run([&](auto link) { return tutti::algo::pairwise_all_reduce(link, a); });
          for (const word& w : result) expect(w == links::spelled(0, me.size()), "the order on rank", me.number());
          if (in_place) continue;
          for (const word& w : in) expect(w == links::letter(me.number()), "the input was changed");
        }
    });
}

TEST_CASE("pairwise_reduce: a reduce_scatter, into a buffer of its own or its block of the input") {
  for (const int size : {1, 2, 3, 5, 8})
    links::run(size, [](auto& me) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{40000}})
        for (const bool in_place : {true, false}) {
          std::vector<std::uint64_t> in(count * static_cast<std::size_t>(me.size())), out(in_place ? 0 : count);
          for (std::size_t i = 0; i < in.size(); ++i) in[i] = i * 10 + static_cast<std::uint64_t>(me.number());
          const std::size_t begin = count * static_cast<std::size_t>(me.number());
          const std::span<std::uint64_t> result = in_place ? std::span{in}.subspan(begin, count) : std::span{out};
          tutti::reduce_scatter_args a{};
          a.in = links::in(in);
          a.out = tutti::erase_type(result);
          a.op = tutti::erase_type<std::uint64_t>(tutti::sum);
          me.run([&](auto link) { return tutti::algo::pairwise_reduce_scatter(link, a); });
          const auto n = static_cast<std::uint64_t>(me.size());
          for (std::size_t i = 0; i < count; ++i)
            expect(result[i] == n * (begin + i) * 10 + n * (n - 1) / 2, "element", i);
        }
    });
}

TEST_CASE("pairwise_reduce: narrow sums are rounded once, a mean is divided once") {
  links::run(4, [](auto& me) {
    // 256 + 1 + 1 + 1 is 259: in steps of bfloat16, whose neighbours are 2 apart there, it would stay 256.
    std::vector<tutti::bfloat16> v(5, tutti::bfloat16{me.number() == 0 ? 256.0f : 1.0f});
    const tutti::all_reduce_args a{links::in(v), links::out(v), tutti::erase_type<tutti::bfloat16>(tutti::sum)};
    me.run([&](auto link) { return tutti::algo::pairwise_all_reduce(link, a); });
    for (const float x : v) expect(x == 260, "rounded to even once, not", x);
    std::vector<double> d(100001);
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = static_cast<double>(i) + me.number();
    const tutti::all_reduce_args b{links::in(d), links::out(d), tutti::erase_type<double>(tutti::mean)};
    me.run([&](auto link) { return tutti::algo::pairwise_all_reduce(link, b); });
    for (std::size_t i = 0; i < d.size(); ++i) expect(d[i] == static_cast<double>(i) + 1.5, "element", i);
  });
}

}  // namespace
