#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/message/bruck.hpp>
#include <tutti/core/args.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;

TEST_CASE("bruck: an all_gather brings every block to its place, in place and not") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 13}, {2, 5}))
    links::run(size, [](auto& me) {
      for (const std::size_t count : std::vector<std::size_t>{0, 1, 3, 1000, 70001}) {
        const auto value = [](std::size_t rank, std::size_t i) { return static_cast<int>(rank * 1000003 + i); };
        const auto own = static_cast<std::size_t>(me.number());
        for (const bool in_place : {false, true}) {
          std::vector<int> in(count), out(count * static_cast<std::size_t>(me.size()), -1);
          for (std::size_t i = 0; i < count; ++i) (in_place ? out[own * count + i] : in[i]) = value(own, i);
          const auto from =
              in_place ? tutti::const_buffer(tutti::erase_type(std::span<const int>(out).subspan(own * count, count)))
                       : links::in(in);
          me.run([&](auto link) {
            return tutti::algo::bruck_all_gather(link, tutti::all_gather_args{from, links::out(out)});
          });
          for (std::size_t i = 0; i < out.size(); ++i) expect(out[i] == value(i / count, i % count), "element", i);
        }
      }
    });
}

}  // namespace
