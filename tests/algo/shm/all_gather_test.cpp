#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/algo/shm/v.hpp>
#include <tutti/core/args.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;
using links::staging_transport;
using tutti::threads_transport;

// Within a slot, exactly a slot, and several.
const std::vector<std::size_t> counts{0, 1, 1000, 65536, 65537, 200000};

TEST_CASE_TEMPLATE("direct_gather: every rank gets the root's data, whoever the root is", T, threads_transport,
                   staging_transport) {
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<T>(size, [](auto& me) {
      for (int root = 0; root < me.size(); ++root)
        for (const std::size_t count : counts) {
          std::vector<std::uint32_t> v(count, 0xffffffff);
          if (me.number() == root)
            for (std::size_t i = 0; i < count; ++i)
              v[i] = static_cast<std::uint32_t>(i * 3) + static_cast<std::uint32_t>(root);
          me.run([&](auto link) {
            return tutti::algo::direct_broadcast(link, me.shm_group(), tutti::broadcast_args{links::out(v), root});
          });
          for (std::size_t i = 0; i < count; ++i)
            expect(v[i] == i * 3 + static_cast<std::uint32_t>(root), "element", i);
        }
    });
}

TEST_CASE_TEMPLATE("direct_gather: every rank gets every block", T, threads_transport, staging_transport) {
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<T>(size, [](auto& me) {
      for (const std::size_t count : counts) {
        std::vector<int> in(count), out(count * static_cast<std::size_t>(me.size()), -1);
        for (std::size_t i = 0; i < count; ++i) in[i] = me.number() * 1000003 + static_cast<int>(i);
        me.run([&](auto link) {
          return tutti::algo::direct_all_gather(link, me.shm_group(),
                                                tutti::all_gather_args{links::in(in), links::out(out)});
        });
        for (std::size_t i = 0; i < out.size(); ++i)
          expect(out[i] == static_cast<int>(i / count) * 1000003 + static_cast<int>(i % count), "element", i);
      }
    });
}

/// Whose ranks share a core: how to stage is not chosen, but as it was set.
class crowded_transport : public threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return 2; }
};

TEST_CASE("direct_gather: every block of a message that the caches do not hold arrives, however ranks stage") {
  using tutti::algo::shm_group;
  constexpr std::size_t longest = tutti::algo::detail::beyond_caches / sizeof(std::uint32_t), odd = 4321;
  for (const auto how : {tutti::stores::ordinary, tutti::stores::streaming})
    links::run<crowded_transport>(2, [&](auto& me) {
      me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
      me.shm_group().use({shm_group::slot_bytes, how});
      const std::vector<std::size_t> lengths{longest, odd};
      const auto number = [](std::size_t rank, std::size_t i) { return static_cast<std::uint32_t>(i * 2 + rank); };
      const auto mine = static_cast<std::size_t>(me.number());
      std::vector<std::uint32_t> in(longest), even(2 * longest), uneven(longest + odd);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = number(mine, i);
      const tutti::const_buffer block{in.data(), lengths[mine], sizeof(std::uint32_t), tutti::dtype::u32};
      const auto all = [&](const auto& args, auto gather) {
        me.run([&](auto l) { return gather(l, me.shm_group(), args); });
      };
      all(tutti::all_gather_args{links::in(in), links::out(even)},
          [](auto l, auto& b, const auto& a) { return tutti::algo::direct_all_gather(l, b, a); });
      all(tutti::all_gather_v_args{block, links::out(uneven), lengths},
          [](auto l, auto& b, const auto& a) { return tutti::algo::direct_all_gather_v(l, b, a); });
      for (std::size_t r = 0; r < 2; ++r) {
        for (std::size_t i = 0; i < longest; ++i)
          if (even[r * longest + i] != number(r, i)) return expect(false, "element", i);
        for (std::size_t i = 0; i < lengths[r]; ++i)
          if (uneven[r * longest + i] != number(r, i)) return expect(false, "element of any lengths", i);
      }
    });
}

}  // namespace
