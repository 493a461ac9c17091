#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <tutti/algo/collectives.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>

namespace {

using namespace tutti;

template <class Args>
constexpr std::uint64_t fingerprint(std::uint64_t sequence, const Args& a) {
  return algo::call_of(sequence, a).fingerprint();
}

constexpr buffer floats(std::size_t count) { return {nullptr, count, 4, dtype::f32, space::host}; }
constexpr const_buffer const_floats(std::size_t count) { return {nullptr, count, 4, dtype::f32, space::host}; }

constexpr const_buffer as_input(const buffer& b) { return {b.data, b.count, b.element_bytes, b.type, b.where}; }

TEST_CASE("fingerprint: calls that differ in anything do not look alike") {
  std::set<std::uint64_t> seen;
  std::size_t calls = 0;
  const auto see = [&](std::uint64_t f) {
    seen.insert(f);
    ++calls;
  };
  for (const std::uint64_t sequence : {1U, 2U, 3U, 1000U}) {
    see(fingerprint(sequence, barrier_args{}));
    for (const std::size_t count : {0U, 1U, 2U, 4U, 100U, 1000000U}) {
      for (const buffer data : {floats(count), buffer{nullptr, count, 4, dtype::i32, space::host},
                                buffer{nullptr, count, 4, dtype::opaque, space::host},
                                buffer{nullptr, count, 8, dtype::opaque, space::host}}) {
        for (const auto kind : {reduction_kind::sum, reduction_kind::max, reduction_kind::mean}) {
          reduction op;
          op.kind = kind;
          see(fingerprint(sequence, all_reduce_args{{}, data, op}));
          see(fingerprint(sequence, reduce_scatter_args{as_input(data), {}, op}));
          see(fingerprint(sequence, scan_args{as_input(data), {}, op}));
          see(fingerprint(sequence, exclusive_scan_args{{as_input(data), {}, op}}));
          see(fingerprint(sequence, all_reduce_coalesced_args{{nullptr, 3, count, data.element_bytes, data.type}, op}));
          for (const int root : {0, 1, 7}) see(fingerprint(sequence, reduce_args{as_input(data), {}, op, root}));
        }
        for (const int root : {0, 1, 7}) see(fingerprint(sequence, broadcast_args{data, root}));
      }
      see(fingerprint(sequence, all_gather_args{{}, floats(count)}));
      const layout equal = layout::of_equal(count);
      see(fingerprint(sequence, all_to_all_args{const_floats(count), {}, equal, equal}));
      for (const int root : {0, 1, 7}) {
        see(fingerprint(sequence, gather_args{const_floats(count), {}, equal, root}));
        see(fingerprint(sequence, scatter_args{{}, floats(count), equal, root}));
      }
    }
  }
  CHECK(seen.size() == calls);
}

TEST_CASE("fingerprint: lengths of blocks count where all ranks know them, and where they lie never does") {
  const std::array<std::size_t, 3> a{1, 2, 3}, b{1, 3, 2}, c{5, 10, 20};
  const auto gathered = [](const layout& l) { return fingerprint(1, all_gather_v_args{const_floats(1), {}, l}); };
  CHECK(gathered(a) != gathered(b));
  CHECK(gathered(a) == gathered({a, c}));
  const auto scattered = [](const layout& l) { return fingerprint(1, reduce_scatter_v_args{{}, floats(1), l, {}}); };
  CHECK(scattered(a) != scattered(b));
  CHECK(scattered(a) == scattered({a, c}));
  const auto to_root = [](const layout& l, std::size_t n) {
    return fingerprint(1, gather_args{const_floats(n), {}, l, 0});
  };
  CHECK(to_root(a, 1) == to_root({}, 7));
  CHECK(to_root(a, 1) != to_root(layout::of_equal(1), 1));
}

TEST_CASE("fingerprint: the divisor of a mean counts") {
  const std::array<std::size_t, 3> blocks{1, 2, 3};
  std::set<std::uint64_t> seen;
  std::set<std::uint32_t> roots;
  std::set<std::uint16_t> briefs;
  for (int i = 1; i <= 16; ++i) {
    const reduction op = erase_type<float>(mean_over(i));
    const auto see = [&](const algo::call_signature& c) {
      CHECK(seen.insert(c.fingerprint()).second);
      CHECK(algo::call_signature::unpack(c.pack()) == c);
    };
    see(algo::call_of(1, all_reduce_args{{}, floats(4), op}));
    see(algo::call_of(1, reduce_scatter_args{const_floats(4), {}, op}));
    see(algo::call_of(1, all_reduce_coalesced_args{{nullptr, 3, 4, 4, dtype::f32}, op}));
    see(algo::call_of(1, scan_args{const_floats(4), {}, op}));
    see(algo::call_of(1, reduce_scatter_v_args{{}, floats(1), blocks, op}));
    for (const int root : {0, 1, 7}) {
      const auto c = algo::call_of(1, reduce_args{const_floats(4), {}, op, root});
      see(c);
      roots.insert(c.root());
      CHECK((c.short_id() & 7) == root);
    }
    briefs.insert(algo::call_of(1, all_reduce_args{{}, floats(4), op}).short_id());
  }
  CHECK(roots.size() == 3);
  CHECK(briefs.size() >= 6);  // three bits tell most of them apart
  CHECK(*briefs.rbegin() - *briefs.begin() < 8);
}

TEST_CASE("fingerprint: addresses and the captures of a reduction are each rank's own") {
  std::array<float, 4> x{}, y{};
  reduction a, b;
  a.kind = b.kind = reduction_kind::custom;
  b.context[0] = std::byte{1};
  all_reduce_args first{const_floats(4), floats(4), a}, second{const_floats(4), floats(4), b};
  first.out.data = x.data();
  second.out.data = y.data();
  CHECK(fingerprint(5, first) == fingerprint(5, second));
}

}  // namespace

TEST_CASE("collectives: a problem is told the size of a message where all ranks know it and a choice depends on it") {
  std::vector<float> v(1000);
  constexpr tutti::algo::problem here{tutti::algo::connectivity::messages, 3, 0, 1};
  const std::vector<std::size_t> counts{1, 2, 997};
  const auto sized = [&]<class Args>(const Args& a) { return algo::traits<Args>::size(a, here).bytes; };
  CHECK(sized(tutti::all_reduce_args{links::in(v), links::out(v), {}}) == 4000);
  CHECK(sized(tutti::broadcast_args{links::out(v), 0}) == 4000);
  CHECK(sized(tutti::gather_args{links::in(v), {}, layout::of_equal(1000), 0}) == 12000);
  CHECK(sized(tutti::gather_args{links::in(v), {}, counts, 0}) == 0);
  CHECK(sized(tutti::scatter_args{{}, links::out(v), counts, 0}) == 0);
  CHECK(sized(tutti::all_gather_v_args{links::in(v), links::out(v), counts}) == 0);
}
