#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>
#include <support/ordered_sum.hpp>

namespace conformance {

template <class World>
void expect_same_everywhere(session<World>& s, const which& c, std::uint64_t digest) {
  std::vector<std::uint64_t> all(s.size());
  s.world.all_gather(std::span<const std::uint64_t>{&digest, 1}, all).wait();
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] != digest) fail(c, "the bits differ from those of rank " + std::to_string(r));
}

/// Inexact sums: every rank must end with the same bits, and two runs must give the same.
template <class T, class World>
void check_agreement(session<World>& s, std::size_t count) {
  using enum tutti::algorithm;
  const std::vector<T> mine = tutti_test::ordered_operands<T>(s.world.rank(), count);
  const auto agree = [&](const char* call, tutti::algorithm via, auto run) {
    const which c = s.name(call, count, type_name<T>(), via);
    std::vector<T> v = mine;
    run(v, via);
    const std::uint64_t digest = hash(std::as_bytes(std::span{v}));
    expect_same_everywhere(s, c, digest);
    v = mine;
    run(v, via);
    expect(hash(std::as_bytes(std::span{v})) == digest, c, "a second run gave other bits");
  };
  for (const auto via : s.template algorithms<tutti::all_reduce_args>(
           {automatic, direct, ring, recursive_doubling, halving_doubling, hierarchical, pairwise}, sizeof(T)))
    agree("all_reduce", via,
          [&](std::vector<T>& v, auto how) { s.world.all_reduce(v, tutti::sum, {.via = how}).wait(); });
  for (const auto via : s.template algorithms<tutti::all_reduce_coalesced_args>(
           {automatic, direct, ring, recursive_doubling, pairwise}, sizeof(T)))
    agree("all_reduce_coalesced", via, [&](std::vector<T>& v, auto how) {
      const std::vector<std::span<T>> two{std::span{v}.first(count / 3), std::span{v}.subspan(count / 3)};
      s.world.all_reduce_coalesced(two, tutti::sum, {.via = how}).wait();
    });
}

/// `count` elements from element `begin` on, of a buffer that may lie in memory of the library.
struct part {
  std::size_t begin, count;
};

/// The sums of a part by every call that gives them, on every rank, as a fold in rank order by hand gives them.
template <class T, class World>
void check_order_of_part(session<World>& s, std::span<T> in, std::span<T> out, const part& p, const std::string& note) {
  const int rank = s.world.rank(), size = s.world.size();
  const std::vector<T> operands = tutti_test::ordered_operands<T>(rank, p.begin + p.count),
                       sums = tutti_test::ordered_sums<T>(size, p.begin + p.count);
  const std::span<const T> mine = std::span{operands}.subspan(p.begin), wanted = std::span{sums}.subspan(p.begin);
  const std::span<T> from = in.subspan(p.begin, p.count), to = out.subspan(p.begin, p.count);
  // Each rank needs as many; what is left over stays as it was.
  const std::size_t block = p.count / s.size(), even = block * s.size();
  const auto first = static_cast<std::size_t>(rank) * block;
  const auto try_one = [&](const char* call, std::span<T> result, std::size_t count, auto run) {
    which c = s.name(call, count, type_name<T>(), tutti::algorithm::direct);
    c.note = note + ", from element " + std::to_string(p.begin);
    std::copy(mine.begin(), mine.end(), from.begin());
    std::fill(to.begin(), to.end(), T{});
    run();
    const std::size_t at = tutti_test::first_difference<T>(result.first(count), wanted.first(count));
    expect(at == count, c, "element " + std::to_string(at) + " has not the bits of a fold in rank order");
  };
  auto& w = s.world;
  using tutti::algorithm, tutti::reduction_order;
  const bool mapped = !s.template algorithms<tutti::all_reduce_args>({algorithm::direct}, sizeof(T)).empty();
  const auto asked =
      mapped ? tutti::call_options{.via = algorithm::direct} : tutti::call_options{.order = reduction_order::rank};
  for (const tutti::call_options how : {asked, mapped ? tutti::call_options{} : asked}) {
    try_one("all_reduce, in place", from, p.count, [&] { w.all_reduce(from, tutti::sum, how).wait(); });
    try_one("all_reduce", to, p.count, [&] { w.all_reduce(from, to, tutti::sum, how).wait(); });
    const std::vector<std::span<T>> pieces{from.first(p.count / 7), from.subspan(p.count / 7)};
    try_one("all_reduce_coalesced", from, p.count, [&] { w.all_reduce_coalesced(pieces, tutti::sum, how).wait(); });
    auto prepared = w.prepare().all_reduce(from, tutti::sum, how);
    for (const char* call : {"a prepared all_reduce", "the same again"})
      try_one(call, from, p.count, [&] { prepared.start().wait(); });
    if (!mapped) return;
    try_one("reduce and broadcast", to, p.count, [&] {
      w.reduce(from, to, size - 1, tutti::sum, how).wait();
      w.broadcast(to, size - 1, how).wait();
    });
    try_one("reduce_scatter and all_gather", to, even, [&] {
      w.reduce_scatter(from.first(even), to.subspan(first, block), tutti::sum, how).wait();
      w.all_gather(to.subspan(first, block), to.first(even), how).wait();
    });
    const std::vector<std::size_t> blocks(s.size(), block);
    try_one("reduce_scatter_v and all_gather_v", from, even, [&] {
      w.reduce_scatter_v(from.first(even), from.subspan(first, block), blocks, tutti::sum, how).wait();
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), block,
                  to.begin() + static_cast<std::ptrdiff_t>(first));
      w.all_gather_v(to.subspan(first, block), from.first(even), blocks, how).wait();
    });
    try_one("the scan of the last rank", to, p.count, [&] {
      w.scan(from, to, tutti::sum, how).wait();
      w.broadcast(to, size - 1, how).wait();
    });
  }
}

/// Where ranks map memory, elements are added in rank order whatever the call, the size, the place and the memory; over
/// messages the calls that can be asked for it do.
template <class T, class World>
void check_rank_order(session<World>& s) {
  // Beside a step, in a slot, in one piece and in several, between few ranks and many; each at another offset.
  const std::vector<part> parts{{3, 1},      {2, 27},        {0, 56},     {5, 1023},    {77, 2049},
                                {1, 10'007}, {1003, 33'333}, {0, 70'000}, {11, 140'009}};
  constexpr std::size_t most = 140'020;
  expect(s.size() < 3 || tutti_test::order_matters<T>(s.world.size(), 1000) > 20, s.name("sum", 1000, type_name<T>()),
         "the order does not matter for these operands");
  const auto allocated = s.world.template allocate<T>(2 * most);
  std::vector<T> plain(2 * most);
  for (const part& p : s.some_of(parts)) {
    check_order_of_part<T>(s, std::span{plain}.first(most), std::span{plain}.last(most), p, "in ordinary memory");
    check_order_of_part<T>(s, allocated.span().first(most), allocated.span().last(most), p, "in memory of the world");
    const bool here = s.world.rank() % 2 == 0;
    const std::span<T> mixed = here ? std::span{plain} : allocated.span();
    check_order_of_part<T>(s, mixed.first(most), mixed.last(most), p, "in memory of both kinds");
  }
}

template <class World>
void check_bits(session<World>& s) {
  for_each(types<float, double, tutti::float16, tutti::bfloat16>{}, [&]<class T>() {
    for (const std::size_t count : s.counts({1000, 65537})) check_agreement<T>(s, count);
  });
  for_each(types<float, tutti::float16, tutti::bfloat16>{}, [&]<class T>() { check_rank_order<T>(s); });
}

}  // namespace conformance
