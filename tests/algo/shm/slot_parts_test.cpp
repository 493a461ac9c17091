#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/slot_parts.hpp>

namespace {

using tutti::algo::shm_group;
using tutti::algo::slot_parts;

slot_parts known(std::size_t ranks, std::size_t longest) { return {ranks, 0, tutti::layout::of_equal(longest / 8), 8}; }

slot_parts told(std::size_t ranks, std::size_t longest) { return slot_parts::with_table(ranks, longest); }

TEST_CASE("slot_parts: parts and table lie inside of the slot, one behind the other") {
  for (const std::size_t ranks : {2U, 3U, 7U, 64U, 1000U, 4096U})
    for (const std::size_t longest : {std::size_t{0}, std::size_t{1000}, shm_group::slot_bytes})
      for (const bool with_table : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(longest);
        std::vector<std::byte> slot(shm_group::slot_bytes);
        const slot_parts parts = with_table ? told(ranks, longest) : known(ranks, longest);
        CHECK(parts.bytes() > 0);
        const std::size_t table = with_table ? (2 * ranks * 8 + 63) / 64 * 64 : 0;
        for (const std::size_t owner : {std::size_t{0}, std::size_t{1}, ranks - 1}) {
          std::byte* next = slot.data();
          for (std::size_t r = 0; r < ranks; ++r) {
            if (r == owner) continue;
            CHECK(parts.of(slot.data(), owner, r) == next);
            next += parts.bytes();
          }
          CHECK(next + table == slot.data() + parts.total());
        }
        CHECK(parts.total() <= slot.size());
        for (std::size_t r = 0; r < ranks; ++r) parts.tell(slot.data(), r, r * 1000003, r + 17);
        for (std::size_t r = 0; r < ranks; ++r) CHECK(parts.told(slot.data(), r) == (with_table ? r * 1000003 : 0));
        for (std::size_t r = 0; r < ranks; ++r) CHECK(parts.told_place(slot.data(), r) == (with_table ? r + 17 : 0));
      }
}

TEST_CASE("slot_parts: no more room than blocks need, in whole lines") {
  for (const auto& make : {known, told}) {
    for (const std::size_t ranks : {2U, 3U, 7U}) CHECK(make(ranks, shm_group::slot_bytes).bytes() % 64 == 0);
    CHECK(make(4, 1000).bytes() == 1024);
    CHECK(make(4, 0).bytes() == 64);
    CHECK(make(4, shm_group::slot_bytes).bytes() == shm_group::slot_bytes / 4);
    CHECK(make(4, 1000).most() == shm_group::slot_bytes / 4);  // a loop over chunks ends
    CHECK(make(2, shm_group::slot_bytes).bytes() == shm_group::half_bytes);
  }
  CHECK(known(4, 1000).total() == 3072);
  CHECK(told(4, 1000).total() == 3136);
  const std::vector<std::size_t> counts{1000, 10, 20};
  CHECK(slot_parts(3, 0, tutti::layout{counts}, 8).bytes() == 192);  // the own block takes no part
  CHECK(slot_parts(3, 1, tutti::layout{counts}, 8).bytes() == 8000);
}

}  // namespace
