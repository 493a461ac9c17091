#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/board.hpp>
#include <tutti/algo/slot_parts.hpp>

namespace {

using tutti::algo::board;
using tutti::algo::slot_parts;

slot_parts known(std::size_t ranks, std::size_t longest) { return {ranks, tutti::layout::of_equal(longest / 8), 8}; }

TEST_CASE("slot_parts: parts and table lie inside of the slot, one behind the other") {
  for (const std::size_t ranks : {1U, 2U, 3U, 7U, 64U, 1000U})
    for (const bool with_table : {false, true}) {
      CAPTURE(ranks);
      std::vector<std::byte> slot(board::slot_bytes);
      const slot_parts parts = with_table ? slot_parts::with_table(ranks) : known(ranks, board::slot_bytes);
      CHECK(parts.bytes() > 0);
      CHECK(parts.of(slot.data(), 0) - slot.data() ==
            static_cast<std::ptrdiff_t>(with_table ? ((2 * ranks + 1) * 8 + 63) / 64 * 64 : 0));
      for (std::size_t r = 1; r < ranks; ++r)
        CHECK(parts.of(slot.data(), r) == parts.of(slot.data(), r - 1) + parts.bytes());
      CHECK(parts.of(slot.data(), ranks - 1) + parts.bytes() <= slot.data() + slot.size());
      for (std::size_t r = 0; r < ranks; ++r) parts.tell(slot.data(), r, r * 1000003);
      parts.tell_longest(slot.data(), 99);
      for (std::size_t r = 0; r < ranks; ++r) parts.tell_place(slot.data(), r, r + 17);
      for (std::size_t r = 0; r < ranks; ++r) CHECK(parts.told(slot.data(), r) == (with_table ? r * 1000003 : 0));
      CHECK(parts.told_longest(slot.data()) == (with_table ? 99 : 0));
      for (std::size_t r = 0; r < ranks; ++r) CHECK(parts.told_place(slot.data(), r) == (with_table ? r + 17 : 0));
    }
}

TEST_CASE("slot_parts: blocks that all know take no more room than they need, in whole lines") {
  for (const std::size_t ranks : {2U, 3U, 7U}) {
    CHECK(slot_parts::with_table(ranks).bytes() % 64 == 0);
    CHECK(known(ranks, board::slot_bytes).bytes() % 64 == 0);
  }
  CHECK(known(4, 1000).bytes() == 1024);
  CHECK(known(4, 1000).total() == 4096);
  CHECK(known(4, 0).bytes() == 64);  // a loop over pieces ends
  CHECK(known(4, board::slot_bytes).bytes() == board::slot_bytes / 4);
  CHECK(slot_parts(4, tutti::layout{}, 8).total() == board::slot_bytes);
}

}  // namespace
