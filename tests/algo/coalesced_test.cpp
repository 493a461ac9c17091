#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/coalesced.hpp>

#include <algo/lanes.hpp>
#include <support/grid.hpp>

namespace {

using lanes::word;
using spans = std::vector<std::span<word>>;

tutti::buffer_list list_of(const spans& pieces, std::size_t count) {
  return {pieces.data(),
          pieces.size(),
          count,
          sizeof(word),
          tutti::dtype::opaque,
          [](const void* items, std::size_t i) noexcept {
            return std::as_writable_bytes(static_cast<const std::span<word>*>(items)[i]);
          }};
}

/// Buffers of odd lengths, some empty, together within a slot, a slot's worth, and more: `make(link, board, args)`
/// folds all in the order of the ranks.
template <class Make>
void check_order(Make make) {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 9}, {3}))
    lanes::run(size, [&](auto& me) {
      for (const std::size_t count : {0U, 1U, 1000U, 16384U, 16385U, 50000U}) {
        std::vector<word> in(count, lanes::letter(me.number()));
        std::vector<word> all = in;
        spans pieces;
        for (std::size_t at = 0, k = 0; at < count || k < 3; ++k) {
          const std::size_t n = std::min(count - at, k % 4 == 1 ? 0 : k * k * 13 + 1);
          pieces.push_back(std::span{all}.subspan(at, n));
          at += n;
        }
        const tutti::all_reduce_coalesced_args a{list_of(pieces, count), tutti::erase_type<word>(lanes::append{})};
        me.run([&](auto link) { return make(link, me.board(), a); });
        for (std::size_t i = 0; i < count; ++i) lanes::expect(all[i] == lanes::spelled(0, me.size()), "element", i);
      }
    });
}

TEST_CASE("coalesced: buffers that come together in the slots are folded in the order of the ranks") {
  check_order(
      [](auto link, auto& board, const auto& a) { return tutti::algo::direct_all_reduce_coalesced(link, board, a); });
}

TEST_CASE("coalesced: buffers that come together in one are reduced by messages, in the way asked for") {
  check_order([](auto link, auto&, const auto& a) {
    return tutti::algo::packed_all_reduce_coalesced(link, a, tutti::algorithm::recursive_doubling);
  });
}

}  // namespace
