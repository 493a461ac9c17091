#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tutti/async/scratch_pool.hpp>

namespace {

using tutti::scratch_pool;

TEST_CASE("scratch_pool: what is given back is taken again") {
  scratch_pool pool;
  std::byte* const first = pool.take(1000);
  REQUIRE(first);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % scratch_pool::alignment == 0);
  std::memset(first, 1, 1000);
  pool.give(first);
  CHECK(pool.take(1024) == first);
  pool.give(first);
  pool.give(nullptr);
}

TEST_CASE("scratch_pool: several blocks are in use at a time, and the smallest that is large enough is taken") {
  scratch_pool pool;
  std::byte* const large = pool.take(100000);
  std::byte* const small = pool.take(100);
  REQUIRE((large && small));
  CHECK(large != small);
  std::memset(large, 1, 100000);
  std::memset(small, 2, 100);
  CHECK(large[99999] == std::byte{1});
  for (const bool large_first : {true, false}) {
    pool.give(large_first ? large : small);
    pool.give(large_first ? small : large);
    CHECK(pool.take(100) == small);
    CHECK(pool.take(100) == large);
  }
  pool.give(large);
  pool.give(small);
}

TEST_CASE("scratch_pool: there are no more blocks than were in use at a time") {
  scratch_pool pool;
  std::byte* p = nullptr;
  for (std::size_t bytes = 1; bytes < 1'000'000; bytes = bytes * 3 + 1) {
    p = pool.take(bytes);
    REQUIRE(p);
    std::memset(p, 1, bytes);
    pool.give(p);
  }
  CHECK(pool.take(1) == p);  // the only one
  std::byte* const another = pool.take(1);
  CHECK(another != p);
  pool.give(another);
  pool.give(p);
}

TEST_CASE("scratch_pool: what is kept is bounded, whatever was in use") {
  constexpr std::size_t most = scratch_pool::most_kept;
  scratch_pool pool;
  pool.give(pool.take(most + 1));  // too large to keep; a page of it is never touched
  CHECK(pool.kept() == 0);
  std::byte* const half = pool.take(most / 2);
  std::byte* const other = pool.take(most / 2);
  std::byte* const page = pool.take(4096);
  REQUIRE((half && other && page));
  pool.give(half);
  pool.give(other);
  pool.give(page);
  CHECK(pool.kept() == most);
  CHECK(pool.take(most / 2) == other);
  CHECK(pool.kept() == most / 2);
  std::byte* const whole = pool.take(most);  // in place of the largest free one
  CHECK(pool.kept() == 0);
  pool.give(whole);
  pool.give(other);
  CHECK(pool.kept() == most);
}

TEST_CASE("scratch_pool: of many free blocks of several sizes the smallest that fits, the last that was given first") {
  scratch_pool pool;
  std::vector<std::byte*> small, large;
  for (int i = 0; i < 3; ++i) small.push_back(pool.take(64)), large.push_back(pool.take(5000));
  for (const std::size_t i : {0u, 1u, 2u}) {
    pool.give(large[i]);
    pool.give(small[i]);
  }
  CHECK(pool.kept() == 3 * (64 + 8192));
  for (const std::size_t i : {2u, 1u}) CHECK(pool.take(1) == small[i]);
  CHECK(pool.take(65) == large[2]);
  CHECK(pool.take(64) == small[0]);
  CHECK(pool.take(64) == large[1]);
  for (std::byte* p : {small[0], small[1], small[2], large[1], large[2]}) pool.give(p);
}

TEST_CASE("scratch_pool: more memory than there can be is refused") {
  scratch_pool pool;
  CHECK(pool.take(std::numeric_limits<std::size_t>::max()) == nullptr);
  CHECK(pool.take(std::numeric_limits<std::size_t>::max() - 100) == nullptr);
}

}  // namespace
