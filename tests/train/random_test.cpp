#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <tutti/train/random.hpp>

using tutti::train::seed;

TEST_CASE("random: seeds of ranks, epochs, steps and purposes all differ, for neighbouring seeds too") {
  std::set<std::uint64_t> all;
  std::size_t made = 0;
  const auto add = [&](seed s) {
    all.insert(s.value());
    ++made;
  };
  for (std::uint64_t base = 0; base < 5; ++base) {
    add(seed{base});
    for (const char* purpose : {"", "dropout", "noise"}) add(seed{base}.named(purpose));
    for (int rank = 0; rank < 16; ++rank) {
      add(seed{base}.rank(rank));
      for (std::uint64_t epoch = 0; epoch < 16; ++epoch) {
        add(seed{base}.rank(rank).epoch(epoch));
        add(seed{base}.epoch(epoch).rank(rank));
        add(seed{base}.rank(rank).step(epoch));
      }
    }
    for (std::uint64_t epoch = 0; epoch < 16; ++epoch) add(seed{base}.epoch(epoch));
  }
  CHECK(all.size() == made);
}

TEST_CASE("random: a seed is the same everywhere, today and tomorrow") {
  static_assert(seed{42} == seed{42} && seed{42}.rank(1) != seed{42}.rank(2));
  CHECK(seed{0}.value() == 0xe220a8397b1dcdafu);  // the first number of SplitMix64 from 0
  CHECK(seed{42}.rank(3).epoch(7).named("dropout").value() == 13300401488444980789u);
}

TEST_CASE("random: one more changes half of the bits") {
  int changed = 0;
  for (int r = 0; r < 1000; ++r) changed += std::popcount(seed{1}.rank(r).value() ^ seed{1}.rank(r + 1).value());
  CHECK(changed > 31000);
  CHECK(changed < 33000);
}
