#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/algo/ways.hpp>

#include <algo/lanes.hpp>

namespace {

using lanes::expect;
using tutti::algorithm;
using tutti::layout;

// Within a part of a slot, several slots, several segments.
const std::vector<std::size_t> counts{0, 1, 1000, 100001};

std::uint32_t parcel(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from * 1000 + to) * 65537U + static_cast<std::uint32_t>(i);
}

/// By memory and by each algorithm of messages.
template <class Args, class Rank>
void each_way(Rank& me, const Args& args, std::initializer_list<algorithm> others, auto prepare, auto check) {
  prepare();
  me.run([&](auto link) { return tutti::algo::by_memory(link, me.board(), args); });
  check("direct");
  for (const algorithm via : others) {
    prepare();
    me.run([&](auto link) { return tutti::algo::by_messages(link, args, via); });
    check(tutti::name(via));
  }
}

TEST_CASE_TEMPLATE("ways: gather and scatter of equal blocks", T, tutti::threads_transport, lanes::staging_transport) {
  for (const int size : {2, 3, 5, 8})
    lanes::run<T>(size, [](auto& me) {
      const auto n = static_cast<std::size_t>(me.size());
      for (const std::size_t count : counts)
        for (int root = 0; root < me.size(); root += 3) {
          const bool is_root = me.number() == root;
          std::vector<std::uint32_t> part(count), whole(is_root ? n * count : 0);
          each_way(
              me,
              tutti::gather_args{lanes::in(part), is_root ? lanes::out(whole) : tutti::buffer{},
                                 layout::of_equal(count), root},
              {algorithm::tree, algorithm::linear},
              [&] {
                for (std::size_t i = 0; i < count; ++i) part[i] = parcel(me.number(), root, i);
                whole.assign(whole.size(), 0);
              },
              [&](const char* way) {
                for (std::size_t k = 0; k < whole.size(); ++k)
                  expect(whole[k] == parcel(static_cast<int>(k / count), root, k % count),
                         std::string("gather ") + way);
              });
          each_way(
              me,
              tutti::scatter_args{is_root ? lanes::in(whole) : tutti::const_buffer{}, lanes::out(part),
                                  layout::of_equal(count), root},
              {algorithm::tree, algorithm::linear},
              [&] {
                for (std::size_t k = 0; k < whole.size(); ++k)
                  whole[k] = parcel(root, static_cast<int>(k / count), k % count);
                part.assign(count, 0);
              },
              [&](const char* way) {
                for (std::size_t i = 0; i < count; ++i)
                  expect(part[i] == parcel(root, me.number(), i), std::string("scatter ") + way);
              });
        }
    });
}

TEST_CASE_TEMPLATE("ways: all_to_all of equal blocks, apart and in place", T, tutti::threads_transport,
                   lanes::staging_transport) {
  for (const int size : {2, 3, 5, 8})
    lanes::run<T>(size, [](auto& me) {
      const auto n = static_cast<std::size_t>(me.size());
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true}) {
          std::vector<std::uint32_t> in(n * count), apart(n * count);
          auto& out = in_place ? in : apart;
          each_way(
              me,
              tutti::all_to_all_args{lanes::in(in), lanes::out(out), layout::of_equal(count), layout::of_equal(count)},
              {algorithm::pairwise},
              [&] {
                for (std::size_t k = 0; k < in.size(); ++k)
                  in[k] = parcel(me.number(), static_cast<int>(k / count), k % count);
              },
              [&](const char* way) {
                for (std::size_t k = 0; k < out.size(); ++k)
                  expect(out[k] == parcel(static_cast<int>(k / count), me.number(), k % count), way);
              });
        }
    });
}

// Ring and memory alike: a rank that has nothing, one that has nearly all, and gaps between the blocks.
TEST_CASE("ways: blocks of any lengths around a ring") {
  for (const int size : {1, 2, 3, 5})
    lanes::run(size, [](auto& me) {
      const auto n = static_cast<std::size_t>(me.size());
      std::vector<std::size_t> lengths(n), offsets(n);
      std::size_t total = 0;
      for (std::size_t r = 0; r < n; ++r) {
        lengths[r] = r == 1 ? 0 : r == 0 ? 70001 : r;
        offsets[r] = total + 3;
        total = offsets[r] + lengths[r];
      }
      const auto mine = lengths[static_cast<std::size_t>(me.number())];
      std::vector<lanes::word> in(total, lanes::letter(me.number())), out(mine);
      me.run([&](auto link) {
        return tutti::algo::ring_reduce_scatter_v(
            link, tutti::reduce_scatter_v_args{lanes::in(in), lanes::out(out), layout{lengths, offsets},
                                               tutti::erase_type<lanes::word>(lanes::append{})});
      });
      for (const lanes::word& w : out)
        expect(w == lanes::spelled(me.number() + 1, me.size()), "block b is folded from rank b + 1 on");
      std::vector<lanes::word> all(total, lanes::letter(15));
      std::vector<lanes::word> own(mine, lanes::letter(me.number()));
      me.run([&](auto link) {
        return tutti::algo::ring_all_gather_v(
            link, tutti::all_gather_v_args{lanes::in(own), lanes::out(all), layout{lengths, offsets}});
      });
      std::size_t at = 0;
      for (std::size_t r = 0; r < n; ++r) {
        for (; at < offsets[r]; ++at) expect(all[at] == lanes::letter(15), "a gap was written");
        for (; at < offsets[r] + lengths[r]; ++at) expect(all[at] == lanes::letter(static_cast<int>(r)), "a block");
      }
    });
}

}  // namespace
