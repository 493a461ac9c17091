#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// One of the reductions, without its type: it is the library's templates that are to be compiled often, not these.
template <class T, class World>
struct reducing {
  using start = tutti::op (*)(World&, std::span<T> in, std::span<T> out, tutti::algorithm);
  tutti::reduction_kind kind;
  start all_reduce, reduce_scatter;
};

template <class T, class World, class Op>
reducing<T, World> reducing_by(Op) {
  return {Op::kind,
          [](World& w, std::span<T> in, std::span<T> out, tutti::algorithm via) {
            return w.all_reduce(in, out, Op{}, {.via = via});
          },
          [](World& w, std::span<T> in, std::span<T> out, tutti::algorithm via) {
            return w.reduce_scatter(in, out, Op{}, {.via = via});
          }};
}

template <class T, class World>
void check_all_reduce(session<World>& s, const reducing<T, World>& how, std::size_t count, tutti::algorithm via) {
  which c = s.name("all_reduce", count, type_name<T>(), via);
  const int rank = s.world.rank(), size = s.world.size();
  for (const bool in_place : {true, false}) {
    c.note = std::string(tutti::name(how.kind)) + (in_place ? ", in place" : ", out of place");
    const std::uint64_t salt = s.salt();
    const table<T> mine{count, [&](std::size_t i) { return operand<T>(how.kind, rank, i, salt); }};
    const table<T> all{count, [&](std::size_t i) { return reduced<T>(how.kind, size, i, salt); }};
    const guarded<T> in(count, mine);
    const guarded<T> apart(in_place ? 0 : count);
    const std::span<T> out = in_place ? in.span() : apart.span();
    how.all_reduce(s.world, in.span(), out, via).wait();
    expect_equal(c, out, all);
    if (!in_place) expect_equal(c, in.span(), mine);
    expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
  }
}

/// `count` is that of one block.
template <class T, class World>
void check_reduce_scatter(session<World>& s, const reducing<T, World>& how, std::size_t count, tutti::algorithm via) {
  which c = s.name("reduce_scatter", count, type_name<T>(), via);
  const int rank = s.world.rank(), size = s.world.size();
  const std::size_t first = static_cast<std::size_t>(rank) * count;
  for (const bool in_place : {true, false}) {
    c.note = std::string(tutti::name(how.kind)) + (in_place ? ", in place" : ", out of place");
    const std::uint64_t salt = s.salt();
    const table<T> mine{count * s.size(), [&](std::size_t i) { return operand<T>(how.kind, rank, i, salt); }};
    const table<T> all{count, [&](std::size_t i) { return reduced<T>(how.kind, size, first + i, salt); }};
    const guarded<T> in(count * s.size(), mine);
    const guarded<T> apart(in_place ? 0 : count);
    const std::span<T> out = in_place ? in.span().subspan(first, count) : apart.span();
    how.reduce_scatter(s.world, in.span(), out, via).wait();
    expect_equal(c, out, all);
    if (!in_place) expect_equal(c, in.span(), mine);
    expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
  }
}

/// Every algorithm of each of `reductions`.
template <class T, class World, class... Op>
void check_reductions_of(session<World>& s, const sizes& all_counts, Op... reductions) {
  using enum tutti::algorithm;
  std::vector<reducing<T, World>> all;
  const auto add = [&]<class One>(One with) {
    if constexpr (tutti::reduction_for<One, T>) all.push_back(reducing_by<T, World>(with));
  };
  (add(reductions), ...);
  for (const std::size_t count : s.counts(all_counts))
    for (const auto& how : all) {
      for (const auto via : s.template algorithms<tutti::all_reduce_args>(
               {automatic, direct, ring, recursive_doubling, halving_doubling, hierarchical, pairwise}, sizeof(T)))
        check_all_reduce<T>(s, how, count, via);
      for (const auto via : s.template algorithms<tutti::reduce_scatter_args>(
               {automatic, direct, ring, pairwise, hierarchical}, sizeof(T)))
        check_reduce_scatter<T>(s, how, count, via);
    }
}

/// The face of the calls, type by type, and long messages; every reduction of every type: every_reduction.hpp.
template <class World>
void check_reductions(session<World>& s) {
  for_each(every_number{}, [&]<class T>() {
    const auto sum = reducing_by<T, World>(tutti::sum);
    for (const std::size_t count : s.counts(every_count)) {
      check_all_reduce<T>(s, sum, count, tutti::algorithm::automatic);
      check_reduce_scatter<T>(s, sum, count, tutti::algorithm::automatic);
    }
  });
  for_each(every_other_number{}, [&]<class T>() { check_reductions_of<T>(s, sizes{1000}, tutti::sum); });
  for_each(every_alias{}, [&]<class T>() { check_reductions_of<T>(s, sizes{7}, tutti::sum, tutti::min); });
  for_each(types<float, int, tutti::bfloat16>{},
           [&]<class T>() { check_reductions_of<T>(s, every_count, tutti::sum, tutti::mean); });
}

}  // namespace conformance
