#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/algo/shm/small.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/reduction/raw_reduction.hpp>

#include <algo/links.hpp>
#include <algo/shm/inline_path.hpp>
#include <support/grid.hpp>

namespace {

using links::append;
using links::call;
using links::expect;
using links::not_at_once;
using links::word;
using tutti::algo::progress;

std::vector<std::uint32_t> numbers(std::size_t count, int rank) {
  std::vector<std::uint32_t> v(count);
  std::iota(v.begin(), v.end(), static_cast<std::uint32_t>(rank) * 1000);
  return v;
}

/// What sums of numbers() are made of.
std::uint32_t sum_below(std::size_t ranks, std::size_t at) {
  return static_cast<std::uint32_t>(ranks * (ranks - (ranks != 0)) / 2 * 1000 + ranks * at);
}

/// Those in which all ranks take whole inputs, with `count` elements; what differs from its closed form throws.
template <class Rank>
void calls_of_wholes(Rank& me, std::size_t count, int spin_limit, int root) {
  const auto n = static_cast<std::size_t>(me.size()), r = static_cast<std::size_t>(me.number());
  const auto sum = tutti::erase_type<std::uint32_t>(tutti::sum);
  const auto mine = numbers(count, me.number());

  auto data = me.number() == root ? mine : std::vector<std::uint32_t>(count);
  call(me, tutti::broadcast_args{links::out(data), root}, spin_limit);
  expect(data == numbers(count, root), "broadcast from", static_cast<std::size_t>(root));

  std::vector<std::uint32_t> reduced(count);
  call(me, tutti::all_reduce_args{links::in(mine), links::out(reduced), sum}, spin_limit);
  for (std::size_t i = 0; i < count; ++i) expect(reduced[i] == sum_below(n, i), "element of an all_reduce", i);

  std::vector<std::uint32_t> all(n * count);
  call(me, tutti::all_gather_args{links::in(mine), links::out(all)}, spin_limit);
  for (std::size_t i = 0; i < all.size(); ++i)
    expect(all[i] == i / count * 1000 + i % count, "element of an all_gather", i);
  call(me, tutti::barrier_args{}, spin_limit);

  std::vector<std::uint32_t> up_to_me(count), below(count, 7);
  call(me, tutti::scan_args{links::in(mine), links::out(up_to_me), sum}, spin_limit);
  call(me, tutti::exclusive_scan_args{{links::in(mine), links::out(below), sum}}, spin_limit);
  for (std::size_t i = 0; i < count; ++i) {
    expect(up_to_me[i] == sum_below(r + 1, i), "element of a scan", i);
    expect(below[i] == (r == 0 ? 7 : sum_below(r, i)), "element of an exclusive scan", i);
  }

  std::vector<word> words(count, links::letter(me.number())), before = words;
  call(me, tutti::all_reduce_args{links::in(words), links::out(words), tutti::erase_type<word>(append{})}, spin_limit);
  expect(words == std::vector<word>(count, links::spelled(0, me.size())), "another order");
  call(me, tutti::scan_args{links::in(before), links::out(before), tutti::erase_type<word>(append{})}, spin_limit);
  expect(before == std::vector<word>(count, links::spelled(0, me.number() + 1)), "another order of a scan");
}

/// Those in which a rank takes blocks of `count` elements.
template <class Rank>
void calls_of_blocks(Rank& me, std::size_t count, int spin_limit) {
  const auto n = static_cast<std::size_t>(me.size()), r = static_cast<std::size_t>(me.number());
  auto blocks = numbers(n * count, me.number());
  std::vector<std::uint32_t> block(count), received(n * count);
  call(me,
       tutti::reduce_scatter_args{links::in(blocks), links::out(block), tutti::erase_type<std::uint32_t>(tutti::sum)},
       spin_limit);
  for (std::size_t i = 0; i < count; ++i)
    expect(block[i] == sum_below(n, r * count + i), "element of a reduce_scatter", i);

  const auto equal = tutti::layout::of_equal(count);
  call(me, tutti::all_to_all_args{links::in(blocks), links::out(received), equal, equal}, spin_limit);
  call(me, tutti::all_to_all_args{links::in(blocks), links::out(blocks), equal, equal}, spin_limit);
  for (std::size_t i = 0; i < received.size(); ++i)
    expect(received[i] == i / count * 1000 + r * count + i % count, "element of an all_to_all", i);
  expect(blocks == received, "in place");
}

/// Those of blocks that are not equal, one of which is empty: `count` elements times the rank, in order of the ranks or
/// against it; and of lists.
template <class Rank>
void calls_of_any_lengths(Rank& me, std::size_t count, int spin_limit) {
  const auto n = static_cast<std::size_t>(me.size()), r = static_cast<std::size_t>(me.number());
  const auto sum = tutti::erase_type<std::uint32_t>(tutti::sum);
  std::vector<std::size_t> lengths(n), offsets(n);
  for (std::size_t i = 0; i < n; ++i) lengths[i] = i * count;
  std::size_t total = 0;
  for (std::size_t i = n; i-- > 0; total += lengths[i]) offsets[i] = total;
  const auto mine = numbers(r * count, me.number());
  const auto blocks = numbers(total, me.number());
  for (const auto& cut : {tutti::layout{lengths}, tutti::layout{lengths, offsets}}) {
    std::vector<std::uint32_t> all(total), part(r * count);
    call(me, tutti::all_gather_v_args{links::in(mine), links::out(all), cut}, spin_limit);
    for (std::size_t from = 0; from < n; ++from)
      for (std::size_t i = 0; i < lengths[from]; ++i)
        expect(all[cut.begin(from) + i] == from * 1000 + i, "element of an all_gather_v", i);
    // Where its blocks begin is each rank's own affair.
    const auto& own_cut = me.number() % 2 == 0 ? cut : tutti::layout{lengths};
    auto in = blocks;
    for (std::size_t to = 0; to < n; ++to)
      for (std::size_t i = 0; i < lengths[to]; ++i)
        in[own_cut.begin(to) + i] = static_cast<std::uint32_t>(r * 1000 + to * 100 + i);
    call(me, tutti::reduce_scatter_v_args{links::in(in), links::out(part), own_cut, sum}, spin_limit);
    for (std::size_t i = 0; i < part.size(); ++i)
      expect(part[i] == sum_below(n, r * 100 + i), "element of a reduce_scatter_v", i);
  }

  auto data = numbers(3 * count, me.number());
  std::vector<std::span<std::uint32_t>> chunks{
      std::span(data).first(count - 1), {}, std::span(data).subspan(count - 1)};
  call(me, tutti::all_reduce_coalesced_args{links::list(chunks, data.size()), sum}, spin_limit);
  for (std::size_t i = 0; i < data.size(); ++i) expect(data[i] == sum_below(n, i), "element of a list", i);
  std::vector<word> words(3 * count, links::letter(me.number()));
  const std::vector<std::span<word>> wordy{std::span(words).first(count), std::span(words).subspan(count)};
  call(me, tutti::all_reduce_coalesced_args{links::list(wordy, words.size()), tutti::erase_type<word>(append{})},
       spin_limit);
  expect(words == std::vector<word>(3 * count, links::spelled(0, me.size())), "another order of a list");
}

/// Those with a root, where that alone takes or gives; its own block in its place or apart from it.
template <class Rank>
void calls_of_root(Rank& me, std::size_t count, int spin_limit, int root) {
  const auto n = static_cast<std::size_t>(me.size()), r = static_cast<std::size_t>(me.number());
  const bool is_root = me.number() == root;
  const auto equal = tutti::layout::of_equal(count);
  const auto mine = numbers(count, me.number()), whole = numbers(n * count, root);

  std::vector<std::uint32_t> reduced(is_root ? count : 0);
  call(me, tutti::reduce_args{links::in(mine), links::out(reduced), tutti::erase_type<std::uint32_t>(tutti::sum), root},
       spin_limit);
  for (std::size_t i = 0; i < reduced.size(); ++i) expect(reduced[i] == sum_below(n, i), "element of a reduce", i);

  std::vector<std::uint32_t> all(is_root ? n * count : 0), block(count);
  call(me, tutti::gather_args{links::in(mine), links::out(all), equal, root}, spin_limit);
  for (std::size_t i = 0; i < all.size(); ++i) expect(all[i] == i / count * 1000 + i % count, "element of a gather", i);

  call(me, tutti::scatter_args{is_root ? links::in(whole) : tutti::const_buffer{}, links::out(block), equal, root},
       spin_limit);
  for (std::size_t i = 0; i < count; ++i)
    expect(block[i] == static_cast<std::uint32_t>(root) * 1000 + r * count + i, "element of a scatter", i);

  auto there = whole;  // the root's own block stays where it is
  auto own = links::out(there);
  own.data = there.data() + r * count, own.count = count;
  call(me,
       tutti::scatter_args{is_root ? links::in(there) : tutti::const_buffer{}, is_root ? own : links::out(block), equal,
                           root},
       spin_limit);
  expect(there == whole && (is_root || block.front() == static_cast<std::uint32_t>(root) * 1000 + r * count),
         "a scatter in place");
}

template <class Rank>
void all_calls(Rank& me, std::size_t count, int spin_limit, int root) {
  calls_of_wholes(me, count, spin_limit, root);
  calls_of_blocks(me, count, spin_limit);
  calls_of_any_lengths(me, count, spin_limit);
  calls_of_root(me, count, spin_limit, root);
}

TEST_CASE("direct_small: every collective, whichever ranks come at once") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5}, {2, 3}))
    links::run<links::staging_transport>(size, [](auto& me) {
      for (int round = 0; round < 24; ++round)
        for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{14}, std::size_t{50}}) {
          const int kind = (round + me.number()) % 3;  // one gives up at its first look, another waits
          all_calls(me, count, kind == 0 ? not_at_once : kind == 1 ? 0 : 200, round % me.size());
        }
    });
}

TEST_CASE("direct_small: calls of some KiB, all of which choose how to stage after the same one") {
  for (const int size : {2, 3})
    links::run<links::staging_transport>(size, [](auto& me) {
      const auto count = std::size_t{8192} / sizeof(std::uint32_t) / static_cast<std::size_t>(me.size());
      for (int round = 0; round < 700; ++round) {
        const int spin_limit = (round + me.number()) % 3 == 0 ? 0 : 200;
        calls_of_blocks(me, count, spin_limit);
        calls_of_any_lengths(me, std::size_t{600}, spin_limit);
      }
    });
}

TEST_CASE("direct_small: what the others have posted is taken at once, without a routine") {
  std::atomic<int> inline_path{0};
  links::run(2, [&](auto& me) {
    for (int i = 0; i < 300; ++i) {
      float x = static_cast<float>(i + me.number());
      const auto v = std::span<float>{&x, 1};
      const auto with = tutti::erase_type<float>(tutti::sum);
      const tutti::all_reduce_args a{tutti::erase_type(std::span<const float>{v}), tutti::erase_type(v), with};
      if (call(me, a, 1 << 22) == progress::all) ++inline_path;
      expect(x == static_cast<float>(2 * i + 1), "a sum");
    }
  });
  CHECK(inline_path > 0);
}

TEST_CASE("direct_small: a broadcast's root does not wait, and overwrites nothing that is still to be read") {
  links::run<links::staging_transport>(3, [](auto& me) {
    for (std::uint32_t round = 0; round < 2000; ++round) {
      std::vector<std::uint32_t> v(round % 2 == 0 ? 1 : 200, me.number() == 0 ? round : 0);
      call(me, tutti::broadcast_args{links::out(v), 0}, me.number() == 0 ? 200 : 1);
      expect(v.front() == round && v.back() == round, "round " + std::to_string(round));
    }
  });
}

TEST_CASE("direct_small: ranks that only give do not wait, and overwrite nothing that is still to be read") {
  links::run<links::staging_transport>(3, [](auto& me) {
    const auto sum = tutti::erase_type<std::uint32_t>(tutti::sum);
    for (std::uint32_t round = 0; round < 2000; ++round) {
      const std::vector<std::uint32_t> mine(round % 2 == 0 ? 1 : 200, round);
      std::vector<std::uint32_t> up_to_me(mine.size()), total(me.number() == 2 ? mine.size() : 0);
      call(me, tutti::scan_args{links::in(mine), links::out(up_to_me), sum}, me.number() == 0 ? 200 : 1);
      call(me, tutti::reduce_args{links::in(mine), links::out(total), sum, 2}, me.number() == 1 ? not_at_once : 1);
      const auto upto = static_cast<std::uint32_t>(me.number() + 1) * round;
      expect(up_to_me.front() == upto && up_to_me.back() == upto, "round " + std::to_string(round));
      expect(total.empty() || (total.front() == 3 * round && total.back() == 3 * round), "total");
    }
  });
}

TEST_CASE("direct_small: a call that does not match fails on both sides, at once or not") {
  for (const int spin_limit : {not_at_once, 0, 1 << 20}) {
    std::atomic<int> mismatches{0};
    links::run(2, [&](auto& me) {
      call(me, tutti::barrier_args{}, not_at_once);  // opens the shm group
      std::vector<std::uint32_t> v(4 + static_cast<std::size_t>(me.number()));
      const auto with = tutti::erase_type<std::uint32_t>(tutti::sum);
      try {
        call(me, tutti::all_reduce_args{links::in(v), links::out(v), with}, spin_limit);
      } catch (const tutti::error& e) {
        mismatches += e.kind() == tutti::errc::mismatch;
      }
    });
    CHECK(mismatches == 2);
  }
}

struct throwing {
  float operator()(float, float) const { throw std::runtime_error("no"); }
};
void throw_raw(const void*, void*, std::size_t, std::size_t) { throw std::runtime_error("no"); }

TEST_CASE("direct_small: a user's reduction, which may throw, is left to the routine") {
  for (const auto& with :
       {tutti::erase_type<float>(throwing{}), tutti::erase_type(tutti::raw_reduction{&throw_raw, 4})}) {
    std::atomic<int> aborted{0};
    links::run(2, [&](auto& me) {
      call(me, tutti::barrier_args{}, not_at_once);
      std::vector<float> v(1);
      try {
        call(me, tutti::all_reduce_args{links::in(v), links::out(v), with}, 1 << 20);
      } catch (const tutti::error& e) {
        aborted += e.kind() == tutti::errc::aborted;
      }
    });
    CHECK(aborted > 0);
  }
}

}  // namespace
