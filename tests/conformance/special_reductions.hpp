#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction/raw_reduction.hpp>

#include <conformance/operands.hpp>
#include <conformance/reduction_cases.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// A sum in which the operand of rank r counts `factor(r)` times.
template <class T, class World>
void check_factors(session<World>& s, std::size_t count, const char* title, auto with, auto factor) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  const std::uint64_t salt = s.salt();
  const auto plain = [salt](int r, std::size_t i) {
    return static_cast<int>(mix(salt + i % period + static_cast<std::uint64_t>(r) * 4096) % 4);
  };
  const auto sum = [&](std::size_t i, int ranks) {
    int total = 0;
    for (int r = 0; r < ranks; ++r) total += factor(r) * plain(r, i);
    return from_int<T>(total);
  };
  const std::size_t wide_count = count * s.size();
  const table<T> mine{wide_count, [&](std::size_t i) { return from_int<T>(plain(rank, i)); }};
  const table<T> all{count, [&](std::size_t i) { return sum(i, size); }};
  const auto try_one = [&]<class Args>(const char* call, Args*, std::size_t in_count, const table<T>& wanted,
                                       ways candidates, auto run) {
    for (const auto via : s.template algorithms<Args>(std::move(candidates), sizeof(T))) {
      which c = s.name(call, count, type_name<T>(), via);
      c.note = title;
      const guarded<T> in(in_count, mine), out(count);
      run(in.span(), out.span(), tutti::call_options{.via = via});
      expect_equal(c, out.span(), wanted);
      expect_equal(c, in.span(), mine);
      expect(in.intact() && out.intact(), c, "something beside the buffers was written");
    }
  };
  auto& w = s.world;
  try_one("all_reduce", static_cast<tutti::all_reduce_args*>(nullptr), count, all,
          {automatic, direct, ring, recursive_doubling},
          [&](auto in, auto out, auto how) { w.all_reduce(in, out, with, how).wait(); });
  try_one("all_reduce, in place", static_cast<tutti::all_reduce_args*>(nullptr), count, all,
          {automatic, direct, ring, recursive_doubling}, [&](auto in, auto out, auto how) {
            mine.fill(out);
            w.all_reduce(out, with, how).wait();
            (void)in;
          });
  const std::size_t first = static_cast<std::size_t>(rank) * count;
  const table<T> block{count, [&](std::size_t i) { return sum(first + i, size); }};
  try_one("reduce_scatter", static_cast<tutti::reduce_scatter_args*>(nullptr), wide_count, block,
          {automatic, direct, ring}, [&](auto in, auto out, auto how) { w.reduce_scatter(in, out, with, how).wait(); });
  const std::vector<std::size_t> counts(s.size(), count);
  try_one("reduce_scatter_v", static_cast<tutti::reduce_scatter_v_args*>(nullptr), wide_count, block,
          {automatic, direct, ring},
          [&](auto in, auto out, auto how) { w.reduce_scatter_v(in, out, counts, with, how).wait(); });
  const table<T> before{count, [&](std::size_t i) { return sum(i, rank + 1); }};
  try_one("scan", static_cast<tutti::scan_args*>(nullptr), count, before, {automatic, direct, ring, recursive_doubling},
          [&](auto in, auto out, auto how) { w.scan(in, out, with, how).wait(); });
  const table<T> at_root{count, [&](std::size_t i) { return rank == size - 1 ? all(i) : from_int<T>(9); }};
  try_one("reduce", static_cast<tutti::reduce_args*>(nullptr), count, at_root, {automatic, direct, ring, tree},
          [&](auto in, auto out, auto how) {
            at_root.fill(out);
            w.reduce(in, out, size - 1, with, how).wait();
          });
  try_one("all_reduce_coalesced", static_cast<tutti::all_reduce_coalesced_args*>(nullptr), count, all, {automatic},
          [&](auto in, auto out, auto how) {
            mine.fill(out);
            const std::vector<std::span<T>> pieces{out.first(count / 3), out.subspan(count / 3)};
            w.all_reduce_coalesced(pieces, with, how).wait();
            (void)in;
          });
}

template <class World>
void check_raw_reduction(session<World>& s, std::size_t count) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  const tutti::raw_reduction with{&mix_words, 12};
  const std::uint64_t salt = s.salt();
  static_assert(sizeof(words) == 12);
  const auto value = [salt](int r, std::size_t i) {
    const std::uint64_t h = mix(salt + i % period + static_cast<std::uint64_t>(r) * 4096);
    return words{
        {static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(h >> 16), static_cast<std::uint32_t>(h >> 32)}};
  };
  const auto sum = [&](std::size_t i) {
    words all = value(0, i);
    for (int r = 1; r < size; ++r) {
      const words next = value(r, i);
      mix_words(&next, &all, 12, 12);
    }
    return all;
  };
  const table<words> mine{count * s.size(), [&](std::size_t i) { return value(rank, i); }};
  const table<words> all{count, sum};
  const std::size_t first = static_cast<std::size_t>(rank) * count;
  const table<words> block{count, [&](std::size_t i) { return sum(first + i); }};
  for (const auto via :
       s.template algorithms<tutti::all_reduce_args>({automatic, direct, ring, recursive_doubling}, 12)) {
    const which c = s.name("all_reduce", count, "raw", via);
    const guarded<words> in(count, mine), out(count);
    s.world.all_reduce(std::as_bytes(in.span()), std::as_writable_bytes(out.span()), with, {.via = via}).wait();
    expect_equal(c, out.span(), all);
    expect_equal(c, in.span(), mine);
    s.world.all_reduce(std::as_writable_bytes(in.span()), with, {.via = via}).wait();
    expect_equal(c, in.span(), all);
    expect(in.intact() && out.intact(), c, "something beside the buffers was written");
  }
  const std::vector<std::size_t> counts(s.size(), count);
  for (const auto via : s.template algorithms<tutti::reduce_scatter_args>({automatic, direct, ring}, 12)) {
    const which c = s.name("reduce_scatter", count, "raw", via);
    const guarded<words> in(count * s.size(), mine), out(count), uneven(count);
    const auto bytes = std::as_bytes(in.span());
    s.world.reduce_scatter(bytes, std::as_writable_bytes(out.span()), with, {.via = via}).wait();
    s.world.reduce_scatter_v(bytes, std::as_writable_bytes(uneven.span()), counts, with, {.via = via}).wait();
    expect_equal(c, out.span(), block);
    expect_equal(c, uneven.span(), block);
    expect(in.intact() && out.intact() && uneven.intact(), c, "something beside the buffers was written");
  }
}

template <class World>
void check_locations(session<World>& s) {
  const int rank = s.world.rank(), size = s.world.size();
  using at = tutti::value_at<float>;
  const which c = s.name("all_reduce", 1, "value_at");
  const at mine{static_cast<float>((rank * 3 + 1) % size), rank};
  at least = {0, 0}, most = {0, 0};
  for (int r = 0; r < size; ++r) {
    const at next{static_cast<float>((r * 3 + 1) % size), r};
    least = r == 0 ? next : tutti::minloc(least, next);
    most = r == 0 ? next : tutti::maxloc(most, next);
  }
  expect(s.world.all_reduce(mine, tutti::minloc).wait() == least, c, "minloc");
  expect(s.world.all_reduce(mine, tutti::maxloc).wait() == most, c, "maxloc");
  expect(s.world.all_reduce(at{1, 10 + rank}, tutti::minloc).wait() == at{1, 10}, c, "minloc of equal values");
}

/// Long messages: short ones are in every_reduction.hpp.
template <class World>
void check_special_reductions(session<World>& s) {
  for (const std::size_t count : s.counts({7, 1000, 40000})) {
    for_each(types<float, int, tutti::bfloat16>{}, [&]<class T>() {
      check_factors<T>(s, count, "premul_sum", tutti::premul_sum(s.world.rank() + 1), [](int r) { return r + 1; });
    });
    for_each(types<float, tutti::bfloat16>{},
             [&]<class T>() { check_factors<T>(s, count, "mean_over", tutti::mean_over(0.5), [](int) { return 2; }); });
    check_raw_reduction(s, count);
  }
  const int number = s.world.all_reduce(2, tutti::premul_sum(s.world.rank())).wait();
  expect(number == s.world.size() * (s.world.size() - 1), s.name("all_reduce", 1, "int32"), "premul_sum by value");
  check_locations(s);
}

}  // namespace conformance
