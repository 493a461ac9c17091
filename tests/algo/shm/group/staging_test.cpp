#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/algo/dispatch.hpp>
#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/group/staging.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>
#include <support/ordered_sum.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;

/// As if every rank had a core of its own, however few there are. Buffers are staged: what is mapped needs no choice.
class roomy_transport : public links::staging_transport {
 public:
  using staging_transport::staging_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return 1; }
};

/// The same, but one rank has no memory for long walks.
class poor_transport : public roomy_transport {
 public:
  using roomy_transport::roomy_transport;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if (rank() == 1 && bytes >= shm_group::long_rotation) throw tutti::error{{tutti::errc::out_of_resources}, "full"};
    return roomy_transport::allocate(bytes);
  }
};

/// The same, but one rank cannot map the room of another.
class foreign_transport : public roomy_transport {
 public:
  using roomy_transport::roomy_transport;
  [[nodiscard]] std::byte* resolve(int peer, std::uint64_t where, std::size_t bytes = 1) const noexcept {
    return rank() == 1 && peer == 2 && bytes == shm_group::long_bytes ? nullptr
                                                                      : roomy_transport::resolve(peer, where, bytes);
  }
};

/// Ranks that share cores and have no memory for long walks.
class crowded_transport : public poor_transport {
 public:
  using poor_transport::poor_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return 1.5; }
};

/// The same, but one rank has a core of its own, and room: it cannot know that of the others.
class mixed_transport : public crowded_transport {
 public:
  using crowded_transport::crowded_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return rank() == 0 ? 1 : 1.5; }
};

/// More ranks than are worth comparing.
class packed_transport : public roomy_transport {
 public:
  using roomy_transport::roomy_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return rank() == 0 ? 1 : 20; }
};

template <class T>
tutti::routine look(tutti::group_link<T> l, shm_group& shm) {
  shm_group::ticket turn{shm, l.link()};
  co_await turn;
  co_await tutti::algo::detail::choose_staging(tutti::algo::detail::shm_call<T>{l, shm, tutti::barrier_args{}}, shm);
}

/// Sums of messages of many lengths, some of which choose the staging.
template <class Rank>
void check_sums(Rank& me) {
  const auto n = static_cast<std::uint64_t>(me.size());
  for (const std::size_t count : {1u, 100u, 1000u, 5000u, 16384u, 40000u, 100001u}) {
    std::vector<std::uint64_t> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = i * static_cast<std::uint64_t>(me.number() + 1);
    me.run([&](auto l) {
      const tutti::all_reduce_args a{tutti::erase_type(std::span<const std::uint64_t>(data)),
                                     tutti::erase_type(std::span(data)), tutti::erase_type<std::uint64_t>(tutti::sum)};
      return tutti::algo::direct_all_reduce(l, me.shm_group(), a);
    });
    for (std::size_t i = 0; i < count; ++i)
      if (data[i] != i * n * (n + 1) / 2) return expect(false, "element", i);
  }
}

template <class T>
struct ordered {
  std::vector<T> operands, sums;
  ordered(int rank, int size, std::size_t count)
      : operands(tutti_test::ordered_operands<T>(rank, count)), sums(tutti_test::ordered_sums<T>(size, count)) {}
};

/// The sums of `count` elements from element `begin` on by whatever goes through slots, at places that no register and
/// no line of the cache is aligned to: those of a fold in rank order by hand, bit for bit.
template <class T, class Rank>
void check_bits(Rank& me, const ordered<T>& values, std::size_t begin, std::size_t count) {
  using namespace tutti;
  const auto n = static_cast<std::size_t>(me.size()), r = static_cast<std::size_t>(me.number());
  const std::size_t block = count / n, even = block * n;
  std::vector<T> in_memory(begin + count), out_memory(begin + count);
  const std::span<T> in = std::span{in_memory}.subspan(begin), out = std::span{out_memory}.subspan(begin);
  const reduction with = erase_type<T>(sum);
  const auto go = [&](const auto& make) { me.run([&](auto l) { return make(l); }); };
  const auto run_shm = [&](const auto& a) { go([&](auto l) { return algo::run_shm(l, me.shm_group(), a); }); };
  const auto from = [](std::span<T> s) { return erase_type(std::span<const T>{s}); };
  const auto check = [&](const char* what, std::span<T> result, auto run) {
    std::copy_n(&values.operands[begin], count, in.begin());
    std::fill(out.begin(), out.end(), T{});
    run();
    const std::span<const T> wanted = std::span{values.sums}.subspan(begin, result.size());
    expect(tutti_test::first_difference<T>(result, wanted) == result.size(), what, count);
  };
  const int last = me.size() - 1;
  const auto share = [&] {
    go([&](auto l) { return algo::direct_broadcast(l, me.shm_group(), broadcast_args{erase_type(out), last}); });
  };
  check("all_reduce", out, [&] {
    go([&](auto l) {
      return algo::direct_all_reduce(l, me.shm_group(), all_reduce_args{from(in), erase_type(out), with});
    });
  });
  check("reduce_scatter and all_gather", out.first(even), [&] {
    const auto mine = out.subspan(r * block, block);
    go([&](auto l) {
      return algo::direct_reduce_scatter(l, me.shm_group(),
                                         reduce_scatter_args{from(in.first(even)), erase_type(mine), with});
    });
    go([&](auto l) {
      return algo::direct_all_gather(l, me.shm_group(), all_gather_args{from(mine), erase_type(out.first(even))});
    });
  });
  check("reduce and broadcast", out, [&] {
    run_shm(reduce_args{from(in), erase_type(out), with, last});
    share();
  });
  check("scan and broadcast", out, [&] {
    run_shm(scan_args{from(in), erase_type(out), with});
    share();
  });
  check("all_reduce_coalesced", in, [&] {
    const std::vector<std::span<T>> chunks{in.first(count / 3), in.subspan(count / 3)};
    constexpr auto item = [](const void* items, std::size_t i) noexcept {
      return std::as_writable_bytes(static_cast<const std::span<T>*>(items)[i]);
    };
    run_shm(all_reduce_coalesced_args{{chunks.data(), 2, count, sizeof(T), dtype_of<T>(), item}, with});
  });
}

TEST_CASE("staging: every way of it carries messages of every length, also after another way") {
  constexpr shm_group::staging ways[] = {{shm_group::slot_bytes, tutti::stores::ordinary},
                                         {shm_group::slot_bytes, tutti::stores::streaming},
                                         {shm_group::long_rotation, tutti::stores::ordinary},
                                         {shm_group::long_rotation, tutti::stores::streaming}};
  constexpr std::size_t most = 140'020;
  struct part {
    std::size_t begin, count;
  };
  for (const int n : tutti_test::grid<int>({2, 3}, {3})) {
    links::run<roomy_transport>(n, [&](auto& me) {
      const ordered<float> floats(me.number(), n, most);
      const ordered<tutti::bfloat16> halves(me.number(), n, most);
      check_sums(me);  // chooses, and so has room for long walks
      expect(!me.shm_group().choice_due(std::size_t{1} << 20), "the choice is due again at once");
      for (const auto& way : ways) {
        me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
        me.shm_group().use(way);
        check_sums(me);
        for (const part p : {part{3, 1}, part{5, 1023}, part{77, 2049}, part{1, 33'333}, part{11, most - 11}}) {
          check_bits<float>(me, floats, p.begin, p.count);
          check_bits<tutti::bfloat16>(me, halves, p.begin, p.count);
        }
      }
    });
  }
}

TEST_CASE("staging: long blocks of an all_gather, which keep to two places, between short messages") {
  links::run<roomy_transport>(2, [](auto& me) {
    constexpr std::size_t block = (std::size_t{1} << 20) + (std::size_t{16} << 10);
    check_sums(me);
    for (const std::size_t walk : {shm_group::slot_bytes, shm_group::long_rotation}) {
      me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
      me.shm_group().use({walk, tutti::stores::ordinary});
      for (int round = 0; round < 3; ++round) {
        std::vector<std::uint32_t> mine(block / 4), all(2 * mine.size());
        std::iota(mine.begin(), mine.end(), static_cast<std::uint32_t>(me.number() + round) << 24);
        me.run([&](auto l) {
          return tutti::algo::direct_all_gather(l, me.shm_group(), {links::in(mine), links::out(all)});
        });
        for (std::size_t i = 0; i < all.size(); ++i) {
          const auto owner = static_cast<std::uint32_t>(i / mine.size()) + static_cast<std::uint32_t>(round);
          if (all[i] != (owner << 24) + i % mine.size()) return expect(false, "element", i);
        }
        check_sums(me);
      }
    }
  });
}

TEST_CASE("staging: groups that move blocks of any lengths only choose when they have learned of a long one") {
  using namespace tutti;
  using tutti::collective;
  constexpr std::size_t block = std::size_t{64} << 8;          // of 4 bytes
  const std::vector<std::size_t> counts{2 * block, block, 0};  // the longest is that of rank 0
  for (const collective what : {collective::gather, collective::scatter, collective::all_to_all})
    for (const int root : {0, 1})
      links::run<roomy_transport>(3, [&](auto& me) {
        const auto rank = static_cast<std::size_t>(me.number());
        std::vector<std::uint32_t> all(3 * block), mine(counts[rank]);
        const std::vector<std::size_t> row(3, rank == 0 ? block : 0), column{block, 0, 0};
        std::vector<std::uint32_t> sent(3 * row[0]), arrived(block);
        if (what == collective::gather)
          me.run([&](auto l) {
            return algo::direct_gather(l, me.shm_group(),
                                       gather_args{links::in(mine), links::out(all), layout{counts}, root});
          });
        else if (what == collective::scatter)
          me.run([&](auto l) {
            return algo::direct_scatter(l, me.shm_group(),
                                        scatter_args{links::in(all), links::out(mine), layout{counts}, root});
          });
        else
          me.run([&](auto l) {
            return algo::direct_all_to_all(
                l, me.shm_group(), all_to_all_args{links::in(sent), links::out(arrived), layout{row}, layout{column}});
          });
        expect(!me.shm_group().choice_due(std::size_t{1} << 20), "the choice is still due");
      });
}

TEST_CASE("staging: where one rank has no memory for long walks, all stay with what they have") {
  links::run<poor_transport>(3, [](auto& me) {
    check_sums(me);
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    std::byte* first = me.shm_group().slot(0, 0);
    expect(me.shm_group().slot(0, 1) == first + shm_group::slot_bytes, "the slots moved");
  });
}

/// Ranks that share cores choose among those stores alike.
template <class T>
void check_crowded(int n) {
  std::atomic<int> past_caches = 0;
  links::run<T>(n, [&](auto& me) {
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    me.run([&](auto l) { return look(l, me.shm_group()); });
    expect(me.shm_group().staging_method().rotation == shm_group::slot_bytes, "the slots moved");
    expect(me.shm_group().cma() == shm_group::cma_thresholds{}, "a rank uses cma");
    if (me.shm_group().staging_method().how == tutti::stores::streaming) ++past_caches;
    expect(!me.shm_group().choice_due(std::size_t{1} << 20), "nothing was chosen");
    check_sums(me);
  });
  CHECK((past_caches == 0 || past_caches == n));
}

TEST_CASE("staging: ranks that share cores choose by which stores to stage, need no room for it, and use no cma") {
  for (const int n : {2, 3, 5}) check_crowded<crowded_transport>(n);
}

TEST_CASE("staging: so does a group of which only some ranks share cores") {
  for (const int n : {2, 3}) check_crowded<mixed_transport>(n);
}

TEST_CASE("staging: a group of which a rank shares its core with many compares nothing") {
  links::run<packed_transport>(2, [](auto& me) {
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    me.run([&](auto l) { return look(l, me.shm_group()); });
    expect(me.shm_group().choice_due(std::size_t{1} << 20), "something was chosen");
    check_sums(me);
  });
}

TEST_CASE("staging: room of a rank that another cannot map fails all, who name it") {
  links::run<foreign_transport>(3, [](auto& me) {
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    const tutti::status s = nothrow(me.start([&](auto l) { return look(l, me.shm_group()); })).wait();
    expect(s.code == tutti::errc::protocol && s.peer == 2, "the failure", static_cast<std::size_t>(s.peer));
  });
}

TEST_CASE("staging: a choice that is repeated replaces the one before") {
  links::run<roomy_transport>(2, [](auto& me) {
    check_sums(me);
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    me.shm_group().use({shm_group::long_rotation / 4, tutti::stores::ordinary});  // what no choice is
    me.run([&](auto l) { return look(l, me.shm_group()); });
    expect(me.shm_group().staging_method().rotation != shm_group::long_rotation / 4, "the old way is still in use");
    check_sums(me);
  });
}

}  // namespace
