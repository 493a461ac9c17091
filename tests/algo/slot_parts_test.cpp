#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/board.hpp>
#include <tutti/algo/slot_parts.hpp>

namespace {

using tutti::algo::board;
using tutti::algo::slot_parts;

TEST_CASE("slot_parts: parts and table lie inside of the slot, one behind the other") {
  for (const std::size_t ranks : {1U, 2U, 3U, 7U, 64U, 1000U})
    for (const bool with_table : {false, true}) {
      CAPTURE(ranks);
      std::vector<std::byte> slot(board::slot_bytes);
      const slot_parts parts{ranks, with_table};
      CHECK(parts.bytes() > 0);
      CHECK(parts.of(slot.data(), 0) - slot.data() ==
            static_cast<std::ptrdiff_t>(with_table ? (2 * ranks + 1) * 8 : 0));
      for (std::size_t r = 1; r < ranks; ++r)
        CHECK(parts.of(slot.data(), r) == parts.of(slot.data(), r - 1) + parts.bytes());
      CHECK(parts.of(slot.data(), ranks - 1) + parts.bytes() <= slot.data() + slot.size());
      for (std::size_t r = 0; r <= ranks; ++r) parts.tell(slot.data(), r, r * 1000003);
      for (std::size_t r = 0; r < ranks; ++r) parts.tell_place(slot.data(), r, r + 17);
      for (std::size_t r = 0; r <= ranks; ++r) CHECK(parts.told(slot.data(), r) == (with_table ? r * 1000003 : 0));
      for (std::size_t r = 0; r < ranks; ++r) CHECK(parts.told_place(slot.data(), r) == (with_table ? r + 17 : 0));
    }
}

}  // namespace
