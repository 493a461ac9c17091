#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/communicator/overlapping.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/error.hpp>

using tutti::detail::overlapping;

namespace {

/// By all pairs.
bool overlap_at_all(const std::vector<std::size_t>& counts, const std::vector<std::size_t>& offsets) {
  for (std::size_t a = 0; a < counts.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (counts[a] != 0 && counts[b] != 0 && offsets[a] < offsets[b] + counts[b] &&
          offsets[b] < offsets[a] + counts[a])
        return true;
  return false;
}

}  // namespace

TEST_CASE("overlapping: blocks that ascend are looked at once, as a million of them need") {
  std::vector<std::size_t> counts(std::size_t{1} << 20, 2), offsets(counts.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = 3 * i;
  counts[7] = offsets[7] = 0;  // empty blocks may be anywhere
  auto found = overlapping(counts, offsets);
  CHECK(found.first == found.second);
  --offsets[3], --offsets[3];
  found = overlapping(counts, offsets);
  CHECK(found.first == 2);
  CHECK(found.second == 3);
}

TEST_CASE("overlapping: buffers of a list are told by their numbers, few and many, in any order") {
  std::vector<float> memory(1000);
  const auto item = [](const void* items, std::size_t i) noexcept {
    return std::as_writable_bytes(static_cast<const std::span<float>*>(items)[i]);
  };
  for (const std::size_t n : {2u, 5u, 33u, 100u}) {
    std::vector<std::span<float>> list;
    for (std::size_t i = 0; i < n; ++i) list.push_back(std::span{memory}.subspan(10 * (n - 1 - i), 10));
    const auto said = [&]() -> std::string {
      try {
        tutti::detail::check_disjoint({"call"}, {list.data(), n, 0, 4, tutti::dtype::f32, item});
        return "";
      } catch (const tutti::usage_error& e) {
        return e.what();
      }
    };
    CHECK(said().empty());
    std::reverse(list.begin(), list.end());
    CHECK(said().empty());
    list[1] = {};
    CHECK(said().empty());
    list[1] = list[0].last(1);
    CHECK(said() == "call: buffers 0 and 1 overlap, but are written to");
    std::reverse(list.begin(), list.end());
    CHECK(said() ==
          "call: buffers " + std::to_string(n - 2) + " and " + std::to_string(n - 1) + " overlap, but are written to");
  }
}

// All pairs of them would take minutes.
TEST_CASE("overlapping: many blocks in any order are sorted") {
  constexpr std::size_t n = std::size_t{1} << 18;
  std::vector<std::size_t> counts(n, 2), offsets(n);
  for (std::size_t i = 0; i < n; ++i) offsets[i] = 2 * (i * 40503 % n);  // a permutation
  auto found = overlapping(counts, offsets);
  CHECK(found.first == found.second);
  counts[n / 2] = 3;
  found = overlapping(counts, offsets);
  CHECK(found.first != found.second);
  CHECK((found.first == n / 2 || found.second == n / 2));
  counts[n / 2] = 0;
  found = overlapping(counts, offsets);
  CHECK(found.first == found.second);
}

TEST_CASE("overlapping: what is found overlaps, and nothing is missed") {
  std::mt19937 random(7);
  int with = 0, without = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::size_t n = 1 + random() % 48;
    std::vector<std::size_t> counts(n), offsets(n);
    for (std::size_t i = 0; i < n; ++i) {
      counts[i] = random() % 4;
      offsets[i] = random() % (round % 2 == 0 ? 100 : 10000);
    }
    const auto [a, b] = overlapping(counts, offsets);
    (a != b ? with : without) += 1;
    if ((a != b) != overlap_at_all(counts, offsets)) FAIL("of " << n << " blocks in round " << round);
    if (a == b) continue;
    if (a > b || !overlap_at_all({counts[a], counts[b]}, {offsets[a], offsets[b]}))
      FAIL("blocks " << a << " and " << b << " in round " << round);
  }
  CHECK(with > 500);
  CHECK(without > 500);
}
