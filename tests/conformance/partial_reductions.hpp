#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>

#include <conformance/distribution.hpp>
#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// The root gets the reduction; nobody else's buffer changes.
template <class T, class World, class Op>
void check_reduce(session<World>& s, std::size_t count, int root, Op with) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  for (const auto via :
       s.template algorithms<tutti::reduce_args>({automatic, direct, chain, tree, hierarchical}, sizeof(T)))
    for (const bool in_place : {true, false}) {
      which c = s.name("reduce", count, type_name<T>(), via);
      c.note = std::string(tutti::name(Op::kind)) + ", root " + std::to_string(root) + (in_place ? ", in place" : "");
      const std::uint64_t salt = s.salt();
      const table<T> mine{count, [&](std::size_t i) { return operand<T>(Op::kind, rank, i, salt); }};
      const table<T> all{count, [&](std::size_t i) { return reduced<T>(Op::kind, size, i, salt); }};
      const guarded<T> in(count, mine), apart(in_place || rank != root ? 0 : count);
      if (in_place)
        s.world.reduce(in.span(), root, with, {.via = via}).wait();
      else
        s.world.reduce(in.span(), apart.span(), root, with, {.via = via}).wait();
      if (rank == root) expect_equal(c, in_place ? in.span() : apart.span(), all);
      if (rank != root || !in_place) expect_equal(c, in.span(), mine);
      expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
    }
}

/// What ranks 0 to r, or to r - 1, have.
template <class T, class World, class Op>
void check_scan(session<World>& s, std::size_t count, Op with) {
  using enum tutti::algorithm;
  const int rank = s.world.rank();
  for (const bool exclusive : {false, true})
    for (const auto via :
         s.template algorithms<tutti::scan_args>({automatic, direct, chain, recursive_doubling}, sizeof(T)))
      for (const bool in_place : {true, false}) {
        which c = s.name(exclusive ? "exclusive_scan" : "scan", count, type_name<T>(), via);
        c.note = std::string(tutti::name(Op::kind)) + (in_place ? ", in place" : "");
        const std::uint64_t salt = s.salt();
        const table<T> mine{count, [&](std::size_t i) { return operand<T>(Op::kind, rank, i, salt); }};
        const guarded<T> in(count, mine), apart(in_place ? 0 : count, mine);
        const auto out = in_place ? in.span() : apart.span();
        const tutti::call_options how{.via = via};
        if (exclusive)
          s.world.exclusive_scan(in.span(), out, with, how).wait();
        else if (in_place)
          s.world.scan(in.span(), with, how).wait();
        else
          s.world.scan(in.span(), out, with, how).wait();
        const int terms = exclusive ? rank : rank + 1;
        expect_equal(c, out, table<T>{count, [&](std::size_t i) {
                                        return terms == 0 ? mine(i) : reduced<T>(Op::kind, terms, i, salt);
                                      }});
        if (!in_place) expect_equal(c, in.span(), mine);
        expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
      }
}

template <class T, class World, class Op>
void check_reduce_scatter_v(session<World>& s, std::size_t longest, Op with) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  for (const auto via : s.template algorithms<tutti::reduce_scatter_v_args>({automatic, direct, ring}, sizeof(T)))
    for (const bool gaps : {false, true}) {
      which c = s.name("reduce_scatter_v", longest, type_name<T>(), via);
      c.note = std::string(tutti::name(Op::kind)) + (gaps ? ", in place, with gaps" : "");
      const std::uint64_t salt = s.salt();
      const cut blocks(s.size(), longest, salt, gaps);
      const auto me = static_cast<std::size_t>(rank);
      const std::size_t first = blocks.begin(me), count = blocks.counts[me];
      const table<T> mine{blocks.total, [&](std::size_t i) { return operand<T>(Op::kind, rank, i, salt); }};
      const guarded<T> in(blocks.total, mine), apart(count);
      const auto out = gaps ? in.span().subspan(first, count) : apart.span();
      s.world.reduce_scatter_v(in.span(), out, blocks.layout(), with, {.via = via}).wait();
      expect_equal(c, out, table<T>{count, [&](std::size_t i) { return reduced<T>(Op::kind, size, first + i, salt); }});
      expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
    }
}

/// Many buffers of odd lengths, `count` elements in all.
template <class T, class World, class Op>
void check_coalesced(session<World>& s, std::size_t count, Op with) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  for (const auto via : s.template algorithms<tutti::all_reduce_coalesced_args>(
           {automatic, direct, ring, recursive_doubling}, sizeof(T))) {
    const which c = s.name("all_reduce_coalesced", count, type_name<T>(), via);
    const std::uint64_t salt = s.salt();
    std::vector<guarded<T>> buffers;
    std::vector<std::span<T>> spans;
    std::vector<std::size_t> begins;
    for (std::size_t at = 0, k = 0; at < count || k < 3; ++k) {
      const std::size_t n = k == 1 ? 0 : std::min(count - at, k < 6 ? 2 * k + 1 : std::max<std::size_t>(count / 3, 1));
      buffers.emplace_back(n);
      spans.push_back(buffers.back().span());
      begins.push_back(at);
      for (std::size_t i = 0; i < n; ++i) spans.back()[i] = operand<T>(Op::kind, rank, at + i, salt);
      at += n;
    }
    s.world.all_reduce_coalesced(spans, with, {.via = via}).wait();
    for (std::size_t k = 0; k < spans.size(); ++k) {
      expect_equal(c, spans[k], table<T>{spans[k].size(), [&](std::size_t i) {
                                           return reduced<T>(Op::kind, size, begins[k] + i, salt);
                                         }});
      expect(buffers[k].intact(), c, "something beside buffer " + std::to_string(k) + " was written");
    }
  }
}

template <class World>
void check_scanned_values(session<World>& s) {
  const int rank = s.world.rank();
  const which c = s.name("scan", 1, "int32");
  expect(s.world.scan(rank + 1).wait() == (rank + 1) * (rank + 2) / 2, c, "by value");
  expect(s.world.exclusive_scan(rank + 1).wait() == rank * (rank + 1) / 2, c, "by value, exclusive");
  expect(s.world.exclusive_scan(rank, tutti::max).wait() == std::max(rank - 1, 0), c, "by value, exclusive, max");
}

template <class World>
void check_partial_reductions(session<World>& s) {
  check_scanned_values(s);
  for (const std::size_t count : s.counts({0, 1, 7, 1000, 65537})) {
    for (int root = 0; root < s.world.size(); ++root)
      if (count < 65537 || root == 0) check_reduce<int>(s, count, root, tutti::sum);
    for_each(types<float, tutti::bfloat16>{}, [&]<class T>() {
      check_reduce<T>(s, count, static_cast<int>(count % s.size()), tutti::mean);
      check_scan<T>(s, count, tutti::mean);
      check_reduce_scatter_v<T>(s, count, tutti::mean);
      check_coalesced<T>(s, count, tutti::mean);
    });
    for_each(types<unsigned char, long>{}, [&]<class T>() {
      check_scan<T>(s, count, tutti::max);
      check_reduce_scatter_v<T>(s, count, tutti::sum);
      check_coalesced<T>(s, count, tutti::bxor);
    });
  }
  check_reduce<double>(s, 100000, s.world.size() - 1, tutti::min);
  check_scan<double>(s, 100000, tutti::sum);
  check_reduce_scatter_v<double>(s, 100000, tutti::prod);
}

}  // namespace conformance
