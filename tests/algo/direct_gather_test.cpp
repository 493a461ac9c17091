#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/algo/direct_broadcast.hpp>
#include <tutti/algo/direct_gather.hpp>
#include <tutti/core/args.hpp>

#include <algo/lanes.hpp>
#include <support/grid.hpp>

namespace {

using lanes::expect;
using lanes::staging_transport;
using tutti::threads_transport;

// Within a slot, exactly a slot, and several.
const std::vector<std::size_t> counts{0, 1, 1000, 65536, 65537, 200000};

TEST_CASE_TEMPLATE("direct_gather: every rank gets the root's data, whoever the root is", T, threads_transport,
                   staging_transport) {
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    lanes::run<T>(size, [](auto& me) {
      for (int root = 0; root < me.size(); ++root)
        for (const std::size_t count : counts) {
          std::vector<std::uint32_t> v(count, 0xffffffff);
          if (me.number() == root)
            for (std::size_t i = 0; i < count; ++i)
              v[i] = static_cast<std::uint32_t>(i * 3) + static_cast<std::uint32_t>(root);
          me.run([&](auto link) {
            return tutti::algo::direct_broadcast(link, me.board(), tutti::broadcast_args{lanes::out(v), root});
          });
          for (std::size_t i = 0; i < count; ++i)
            expect(v[i] == i * 3 + static_cast<std::uint32_t>(root), "element", i);
        }
    });
}

TEST_CASE_TEMPLATE("direct_gather: every rank gets every block", T, threads_transport, staging_transport) {
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    lanes::run<T>(size, [](auto& me) {
      for (const std::size_t count : counts) {
        std::vector<int> in(count), out(count * static_cast<std::size_t>(me.size()), -1);
        for (std::size_t i = 0; i < count; ++i) in[i] = me.number() * 1000003 + static_cast<int>(i);
        me.run([&](auto link) {
          return tutti::algo::direct_all_gather(link, me.board(),
                                                tutti::all_gather_args{lanes::in(in), lanes::out(out)});
        });
        for (std::size_t i = 0; i < out.size(); ++i)
          expect(out[i] == static_cast<int>(i / count) * 1000003 + static_cast<int>(i % count), "element", i);
      }
    });
}

}  // namespace
