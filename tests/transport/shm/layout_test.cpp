#include <doctest/doctest.h>

#include <tutti/algo/shm/group/group.hpp>
#include <tutti/transport/shm/layout.hpp>

#include "support/forked_child.hpp"

using tutti::shm_layout;

TEST_CASE("the area and the heaps follow each other in whole pages, and do not overlap") {
  const std::uint64_t page = tutti::os::page_bytes();
  for (const int n : {1, 2, 7, 64}) {
    const auto l = shm_layout::of(n, 10 * page + 1);
    CHECK(l.area_bytes >= tutti::shm_control_block::bytes(n));
    CHECK(l.area_bytes % page == 0);
    CHECK(l.heap_bytes == 11 * page);
    CHECK(l.heap_offset(0) == l.area_bytes);
    for (int r = 0; r < n; ++r) {
      CHECK(l.heap_offset(r) % page == 0);
      CHECK(l.heap_offset(r) + l.heap_bytes <= (r + 1 < n ? l.heap_offset(r + 1) : l.bytes()));
    }
  }
}

TEST_CASE("one place in two heaps is not a multiple of 256 MiB apart, where heaps are of such sizes") {
  for (const std::uint64_t heap : {std::uint64_t{256} << 20, shm_layout::default_heap_bytes(2), std::uint64_t{3} << 30})
    for (const int n : {2, 8, 64}) {
      const auto l = shm_layout::of(n, heap);
      for (int r = 1; r < n; ++r) CHECK((l.heap_offset(r) - l.heap_offset(0)) % (256U << 20) != 0);
    }
}

TEST_CASE("impossible sizes are refused") {
  CHECK_THROWS_AS((void)shm_layout::of(0, 4096), tutti::usage_error);
  CHECK_THROWS_AS((void)shm_layout::of(-1, 4096), tutti::usage_error);
  CHECK_THROWS_AS((void)shm_layout::of(shm_layout::most_ranks + 1, 4096), tutti::usage_error);
  CHECK_THROWS_AS((void)shm_layout::of(4, shm_layout::most_heap_bytes + 1), tutti::usage_error);
  CHECK(shm_layout::of(shm_layout::most_ranks, shm_layout::most_heap_bytes).bytes() > 0);
}

TEST_CASE("heaps are ample, and bounded together") {
  CHECK(shm_layout::default_heap_bytes(1) >= shm_layout::least_heap_bytes);
  CHECK(shm_layout::default_heap_bytes(2) <= shm_layout::default_heap_bytes(1));
  for (const int n : {1, 64, 65, 512, 4096})
    CHECK(shm_layout::default_heap_bytes(n) * static_cast<std::uint64_t>(n) <= std::uint64_t{4} << 40);
}

TEST_CASE("limits of the process make the heaps smaller") {
  for (const auto resource : {RLIMIT_AS, RLIMIT_FSIZE}) {
    tutti_test::forked_child child{[resource] {
      const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
      if (::setrlimit(resource, &limit) != 0) return 2;
      return shm_layout::default_heap_bytes(4) == (std::uint64_t{8} << 30) / 16 ? 0 : 1;
    }};
    CHECK(child.wait() == 0);
  }
}

TEST_CASE("of 64 ranks on a machine the rings and one shm group cost less than 1 MiB per pair") {
  constexpr int n = 64;
  constexpr std::uint64_t pairs = n * (n - 1) / 2;
  const std::uint64_t groups = n * (tutti::algo::shm_group::part_bytes + tutti::algo::shm_group::long_bytes);
  CHECK(tutti::shm_control_block::bytes(n) + groups <= pairs << 20);
}
