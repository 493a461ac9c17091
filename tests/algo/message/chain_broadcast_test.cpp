#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/algo/message/chain_broadcast.hpp>
#include <tutti/core/args.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;

TEST_CASE("chain_broadcast: every rank gets the root's data, whoever the root is") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 8, 9}, {2, 4}))
    links::run(size, [](auto& me) {
      for (int root = 0; root < me.size(); ++root)
        for (const std::size_t count : std::vector<std::size_t>{0, 1, 1000, 300001}) {
          std::vector<std::uint32_t> v(count, 0xffffffff);
          if (me.number() == root)
            for (std::size_t i = 0; i < count; ++i)
              v[i] = static_cast<std::uint32_t>(i * 3) + static_cast<unsigned>(root);
          me.run([&](auto link) {
            return tutti::algo::chain_broadcast(link, tutti::broadcast_args{links::out(v), root});
          });
          for (std::size_t i = 0; i < count; ++i) expect(v[i] == i * 3 + static_cast<unsigned>(root), "element", i);
        }
    });
}

}  // namespace
