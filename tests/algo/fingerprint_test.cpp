#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

#include <tutti/algo/fingerprint.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction.hpp>

namespace {

using namespace tutti;
using algo::fingerprint;

constexpr buffer floats(std::size_t count) { return {nullptr, count, 4, dtype::f32, space::host}; }
constexpr const_buffer const_floats(std::size_t count) { return {nullptr, count, 4, dtype::f32, space::host}; }

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
          see(fingerprint(sequence, reduce_scatter_args{{}, data, op}));
        }
        for (const int root : {0, 1, 7}) see(fingerprint(sequence, broadcast_args{data, root}));
      }
      see(fingerprint(sequence, all_gather_args{const_floats(count), {}}));
    }
  }
  CHECK(seen.size() == calls);
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
