#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tutti/transport/shm/heap.hpp>
#include <vector>

namespace {

using tutti::detail::shm_heap;

constexpr std::size_t page = 4096;
constexpr std::uint64_t MiB = 1 << 20;

/// A heap in the second half of a segment, as a rank's that is not the first.
struct second_half {
  explicit second_half(std::uint64_t bytes)
      : half(bytes), segment(tutti::os::shm_segment::create(2 * bytes)), memory(segment.map()) {}
  std::uint64_t half;
  tutti::os::shm_segment segment;
  tutti::os::shm_mapping memory;
  shm_heap heap{segment, memory.data() + half, half, half};
  [[nodiscard]] std::byte* base() const { return memory.data() + half; }
  [[nodiscard]] std::uint64_t pages_taken() const {
    struct stat s{};
    return ::fstat(segment.native(), &s) == 0 ? static_cast<std::uint64_t>(s.st_blocks) * 512 : 0;
  }
};

bool is_zero(const std::byte* p, std::size_t n) {
  return std::all_of(p, p + n, [](std::byte b) { return b == std::byte{}; });
}

}  // namespace

TEST_CASE("memory is zeroed, aligned, and inside the rank's own heap") {
  second_half s{4 * MiB};
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, page, page + 1, std::size_t{MiB}}) {
    std::byte* p = s.heap.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % page == 0);
    CHECK(p >= s.base());
    CHECK(p + bytes <= s.base() + s.half);
    CHECK(is_zero(p, bytes));
    std::memset(p, 0xff, bytes);
  }
}

TEST_CASE("memory that comes back is zeroed again") {
  second_half s{4 * MiB};
  std::byte* a = s.heap.allocate(3 * page);
  std::byte* b = s.heap.allocate(page);
  std::memset(a, 0xff, 3 * page);
  std::memset(b, 0xff, page);
  s.heap.deallocate(a);
  std::byte* c = s.heap.allocate(2 * page);
  CHECK(c == a);
  CHECK(is_zero(c, 2 * page));
  s.heap.deallocate(b);
  s.heap.deallocate(c);
  std::byte* all = s.heap.allocate(5 * page);  // what was given back at the end, and a page that nobody had
  CHECK(all == a);
  CHECK(is_zero(all, 5 * page));
}

TEST_CASE("neighbours merge whatever the order in which they come back") {
  std::vector<int> order{0, 1, 2, 3};
  do {
    second_half s{4 * MiB};
    std::vector<std::byte*> p;
    for (int i = 0; i < 4; ++i) p.push_back(s.heap.allocate(page));
    std::byte* end = s.heap.allocate(page);
    for (const int i : order) s.heap.deallocate(p[static_cast<std::size_t>(i)]);
    CHECK(s.heap.allocate(4 * page) == p[0]);
    s.heap.deallocate(end);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the first block that fits is taken and split") {
  second_half s{4 * MiB};
  std::byte* small = s.heap.allocate(page);
  std::byte* wall = s.heap.allocate(page);
  std::byte* large = s.heap.allocate(4 * page);
  (void)s.heap.allocate(page);
  s.heap.deallocate(large);
  s.heap.deallocate(small);
  CHECK(s.heap.allocate(2 * page) == large);
  CHECK(s.heap.allocate(page) == small);
  CHECK(s.heap.allocate(2 * page) == large + 2 * page);
  s.heap.deallocate(wall);
}

TEST_CASE("pages are taken when memory is handed out, in steps") {
  second_half s{256 * MiB};
  CHECK(s.heap.reserved_bytes() == 0);
  CHECK(s.pages_taken() == 0);
  std::set<std::uint64_t> steps;
  for (int i = 0; i < 5000; ++i) {
    (void)s.heap.allocate(1);
    steps.insert(s.heap.reserved_bytes());
  }
  CHECK(steps.size() < 20);
  CHECK(s.heap.reserved_bytes() >= 5000 * page);
  CHECK(s.heap.reserved_bytes() < 8000 * page);
  CHECK(s.pages_taken() == s.heap.reserved_bytes());
  const auto before = s.heap.reserved_bytes();
  std::byte* big = s.heap.allocate(100 * MiB);
  CHECK(s.heap.reserved_bytes() - before <= 102 * MiB);
  s.heap.deallocate(big);
  (void)s.heap.allocate(100 * MiB);
  CHECK(s.heap.reserved_bytes() - before <= 102 * MiB);
}

TEST_CASE("a free block beside one whose pages were given back has none either, and takes no page twice") {
  for (const bool at_the_end : {false, true}) {
    second_half s{256 * MiB};
    std::byte* const kept = s.heap.allocate(30 * MiB);
    std::byte* const back = s.heap.allocate(10 * MiB);
    std::byte* const next = at_the_end ? nullptr : s.heap.allocate(page);
    s.heap.deallocate(kept);
    const std::uint64_t before = s.pages_taken();
    s.heap.give_back(back);
    CHECK(s.pages_taken() <= before - 40 * MiB);
    CHECK(s.heap.allocate(40 * MiB) == kept);
    CHECK(s.pages_taken() >= 40 * MiB);
    CHECK(is_zero(kept, 40 * MiB));
    s.heap.deallocate(next);
  }
}

TEST_CASE("a full heap says so and stays usable") {
  second_half s{16 * page};
  CHECK_THROWS_WITH_AS(
      (void)s.heap.allocate(17 * page),
      "no room for 68 KiB in this rank's shared memory: it is more than the 64 KiB that a rank may allocate at all",
      tutti::error);
  CHECK_THROWS_AS((void)s.heap.allocate(~std::size_t{0}), tutti::error);
  std::byte* p = s.heap.allocate(10 * page);
  try {
    (void)s.heap.allocate(7 * page);
    FAIL("there was no room");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == tutti::errc::out_of_resources);
    CHECK(std::string{e.what()}.find("28 KiB") != std::string::npos);
    CHECK(std::string{e.what()}.find("free some") != std::string::npos);
  }
  (void)s.heap.allocate(6 * page);
  CHECK_THROWS_AS((void)s.heap.allocate(1), tutti::error);
  s.heap.deallocate(p);
  CHECK(s.heap.allocate(10 * page) == p);
}

TEST_CASE("pages that the machine does not have are an error, and the next smaller wish is granted") {
  const std::uint64_t huge = tutti::os::available_memory() / page * page * 2;
  second_half s{huge};
  CHECK_THROWS_AS((void)s.heap.allocate(huge), tutti::error);
  CHECK(is_zero(s.heap.allocate(page), page));
  CHECK(s.heap.reserved_bytes() < 16 * MiB);
}

TEST_CASE("what was not allocated is not given back") {
  second_half s{4 * MiB};
  std::byte* p = s.heap.allocate(3 * page);
  std::byte on_the_stack{};
  for (std::byte* foreign :
       {static_cast<std::byte*>(nullptr), p + 1, p + page, p - page, p + 3 * page, &on_the_stack, s.memory.data()})
    s.heap.deallocate(foreign);
  CHECK(s.heap.locate(p, 3 * page) == 0);
  s.heap.deallocate(p);
  s.heap.deallocate(p);  // twice
  std::byte* a = s.heap.allocate(page);
  std::byte* b = s.heap.allocate(page);
  CHECK(a != b);
}

TEST_CASE("only what lies inside one allocation can be located") {
  second_half s{4 * MiB};
  std::byte* a = s.heap.allocate(2 * page);
  std::byte* b = s.heap.allocate(page);
  CHECK(s.heap.locate(a, 2 * page) == 0);
  CHECK(s.heap.locate(a + 5, 10) == 5);
  CHECK(s.heap.locate(b, page) == 2 * page);
  CHECK(s.heap.locate(b + page - 1, 1) == 3 * page - 1);
  CHECK(s.heap.locate(b, 0) == 2 * page);
  CHECK_FALSE(s.heap.locate(a, 2 * page + 1));  // into the neighbour
  CHECK_FALSE(s.heap.locate(b, page + 1));
  CHECK_FALSE(s.heap.locate(b + page, 0));
  CHECK_FALSE(s.heap.locate(a - 1, 1));
  CHECK_FALSE(s.heap.locate(a + 5, ~std::size_t{0}));
  CHECK_FALSE(s.heap.locate(nullptr, 1));
  CHECK_FALSE(s.heap.locate(s.memory.data(), 1));  // another rank's
  int on_the_stack = 0;
  CHECK_FALSE(s.heap.locate(&on_the_stack, sizeof on_the_stack));
  std::byte* c = s.heap.allocate(page);
  s.heap.deallocate(b);
  CHECK_FALSE(s.heap.locate(b, 1));
  CHECK_FALSE(s.heap.locate(b + 8, 1));
  CHECK(s.heap.locate(a, 1));
  CHECK(s.heap.locate(c, 1) == 3 * page);
  s.heap.deallocate(a);
  CHECK_FALSE(s.heap.locate(a, 1));
}

TEST_CASE("a long random life agrees with a simple model") {
  second_half s{8 * MiB};
  std::mt19937 random{5};
  struct block {
    std::size_t bytes;
    unsigned char fill;
  };
  std::map<std::byte*, block> live;
  int full = 0;
  for (int i = 0; i < 6000; ++i) {
    if (random() % 5 < 3) {
      const std::size_t bytes = 1 + random() % (random() % 10 == 0 ? 600000 : 20000);
      try {
        std::byte* p = s.heap.allocate(bytes);
        REQUIRE(is_zero(p, bytes));
        const auto after = live.lower_bound(p);
        REQUIRE((after == live.end() || p + bytes <= after->first));
        if (after != live.begin()) {
          const auto before = std::prev(after);
          REQUIRE(before->first + before->second.bytes <= p);
        }
        const block b{bytes, static_cast<unsigned char>(1 + random() % 255)};
        std::memset(p, b.fill, bytes);
        live.emplace(p, b);
      } catch (const tutti::error&) {
        ++full;
      }
    } else if (!live.empty()) {
      auto it = live.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(random() % live.size()));
      const auto* p = reinterpret_cast<const unsigned char*>(it->first);
      REQUIRE(std::all_of(p, p + it->second.bytes, [&](unsigned char c) { return c == it->second.fill; }));
      s.heap.deallocate(it->first);
      live.erase(it);
    }
  }
  CHECK(full > 0);
  while (!live.empty()) {
    s.heap.deallocate(live.begin()->first);
    live.erase(live.begin());
  }
  CHECK(s.heap.allocate(8 * MiB) == s.base());  // everything has merged
}
