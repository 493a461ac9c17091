#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/shm/fold_piece.hpp>
#include <tutti/core/reduction.hpp>

using tutti::stores;
using tutti::algo::claim_choice;
using tutti::algo::shm_group;

namespace {

constexpr std::size_t long_one = claim_choice::worth_timing / sizeof(float);

/// Adds 1, 2 and so on to so many results; true if each of these holds the sum.
bool fold(shm_group& b, std::size_t results, std::size_t count) {
  std::vector<std::vector<float>> each;
  auto& room = b.room();
  room.operands.clear();
  room.results.clear();
  for (std::size_t r = 0; r < 3; ++r) each.emplace_back(count, static_cast<float>(r + 1));
  for (const auto& e : each) room.operands.push_back(e.data());
  for (std::size_t r = 0; r < results; ++r) room.results.push_back(each[r].data());
  tutti::algo::detail::fold_piece(b, count * sizeof(float), count, sizeof(float), stores::ordinary,
                                  tutti::erase_type<float>(tutti::sum));
  for (std::size_t r = 0; r < results; ++r)
    if (each[r] != std::vector<float>(count, 6)) return false;
  return true;
}

stores next(shm_group& b, std::size_t count) {
  const auto kernel = reinterpret_cast<std::uintptr_t>(tutti::erase_type<float>(tutti::sum).fold_all_to);
  return b.claims().next({kernel, count * sizeof(float)}, stores::ordinary);
}

}  // namespace

TEST_CASE("fold_piece: a long piece for several ranks is timed, and both ways give the sum") {
  shm_group b;
  for (int i = 0; i < 8; ++i) {
    CHECK(next(b, long_one) == (i % 2 == 0 ? stores::unclaimed : stores::ordinary));
    CHECK(fold(b, 3, long_one));
  }
}

TEST_CASE("fold_piece: what is short, or for one rank, is not timed") {
  shm_group b;
  CHECK(fold(b, 3, long_one - 1));
  CHECK(fold(b, 1, long_one));
  CHECK(next(b, long_one) == stores::unclaimed);
  CHECK(next(b, long_one - 1) == stores::unclaimed);
  CHECK(fold(b, 2, long_one));
  CHECK(next(b, long_one) == stores::ordinary);
}
