#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/algo/collectives.hpp>
#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/mismatch/signature_text.hpp>

namespace {

using namespace tutti;
using algo::call_of;

constexpr buffer floats(std::size_t count) { return {nullptr, count, 4, dtype::f32, space::host}; }
constexpr const_buffer structs(std::size_t count) { return {nullptr, count, 24, dtype::opaque, space::host}; }
constexpr std::array<std::size_t, 2> counts{1, 2};

template <class Args>
std::string text(const Args& a) {
  return algo::describe(call_of(41, a));
}
template <class Args>
std::string short_id(const Args& a, int ranks) {
  return algo::describe_short_id(call_of(41, a).short_id(), ranks);
}

TEST_CASE("call_signature: a call in words, and what a message keeps of it") {
  reduction largest;
  largest.kind = reduction_kind::max;
  CHECK(text(barrier_args{}) == "barrier #41");
  CHECK(text(all_reduce_args{{}, floats(4096), largest}) == "all_reduce #41 (4096 x float32, max)");
  CHECK(text(broadcast_args{floats(1024), 3}) == "broadcast #41 (1024 x float32, root 3)");
  CHECK(text(reduce_args{structs(7), {}, largest, 12}) == "reduce #41 (7 x struct of 24 bytes, max, root 12)");
  CHECK(text(all_gather_v_args{structs(1), {}, counts}) == "all_gather_v #41 (struct of 24 bytes)");
  CHECK(text(gather_v_args{{structs(1), {}, {}, 2}}) == "gather_v #41 (struct of 24 bytes, root 2)");
  CHECK(text(gather_args{structs(1), {}, layout::of_equal(1), 2}) == "gather #41 (1 x struct of 24 bytes, root 2)");
  auto run_messages = call_of(41, broadcast_args{floats(1024), 3});
  run_messages.via = algorithm::chain;
  CHECK(algo::describe(run_messages) == "broadcast #41 (1024 x float32, root 3, by chain)");
  CHECK(algo::call_signature::unpack(run_messages.pack()) == run_messages);
  CHECK(text(broadcast_sized_args{.root = 1}) == "broadcast of a string #41 (uint8, root 1)");

  CHECK(short_id(barrier_args{}, 4) == "barrier");
  CHECK(short_id(all_reduce_args{{}, floats(4096), largest}, 4) == "all_reduce (float32, max)");
  CHECK(short_id(broadcast_args{floats(1024), 3}, 8) == "broadcast (float32, root 3)");
  CHECK(short_id(broadcast_args{floats(1024), 3}, 9) == "broadcast (float32)");  // or root 11
  CHECK(short_id(reduce_args{structs(7), {}, largest, 0}, 2) == "reduce (struct, max, root 0)");
  CHECK(short_id(gather_v_args{{structs(1), {}, {}, 2}}, 4) == "gather(_v) (struct, root 2)");
  CHECK(algo::describe_short_id(0, 2) == "message");
}

TEST_CASE("call_signature: it survives packing, and is never taken for nothing") {
  reduction with;
  for (const auto kind : {reduction_kind::sum, reduction_kind::maxloc, reduction_kind::raw}) {
    with.kind = kind;
    const auto c = call_of(7, reduce_args{structs(std::size_t{1} << 40), {}, with, 70000});
    CHECK(algo::call_signature::unpack(c.pack()) == c);
    CHECK(c.short_id() != 0);
  }
  CHECK(call_of(0, barrier_args{}).short_id() != 0);
  for (unsigned any = 0; any < 65536; ++any)  // it may come from a peer
    if (algo::describe_short_id(static_cast<std::uint16_t>(any), 2).empty()) FAIL("no words for " << any);
}

}  // namespace
