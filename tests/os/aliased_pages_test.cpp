#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <tutti/os/aliased_pages.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/os/memory_policy.hpp>
#include <tutti/os/shm_segment.hpp>

#include <support/forked_child.hpp>
#include <support/grid.hpp>

namespace {

using tutti::os::aliased_pages;
using tutti::os::areas_in;
using tutti::os::page_bytes;
using tutti::os::shm_mapping;
using tutti::os::shm_segment;
using tutti_test::in_child;

/// Private memory that is filled with numbers.
class pages {
 public:
  explicit pages(std::size_t n) : bytes_(n * page_bytes()) {
    void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    at_ = static_cast<std::byte*>(p);
    for (std::size_t i = 0; i < bytes_; ++i) at_[i] = number(i);
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() {
    if (at_) ::munmap(at_, bytes_);
  }
  std::byte* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(at_); }
  std::vector<tutti::os::memory_area> areas() const { return areas_in(begin(), begin() + bytes_); }
  bool are_shared() const { return areas().front().permissions[3] == 's'; }
  void moved_to(std::byte* p) { at_ = p; }
  static std::byte number(std::size_t i) { return static_cast<std::byte>(i * 7 % 251); }
  bool keep_their_numbers() const { return numbers_at(at_, bytes_); }
  static bool numbers_at(const std::byte* p, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      if (p[i] != number(i)) return false;
    return true;
  }

 private:
  std::size_t bytes_;
  std::byte* at_;
};

/// A segment whose pages from the second on are aliased.
struct world {
  shm_segment segment = shm_segment::create(64 * page_bytes());
  shm_mapping mapping = segment.map();

  world() { segment.reserve(0, segment.bytes()); }
  std::byte* image() { return mapping.data() + page_bytes(); }
  aliased_pages alias(const pages& p) { return {segment, page_bytes(), image(), p.at(), p.bytes(), p.areas()}; }
};

std::size_t lines_of_maps() {
  return tutti::os::areas_that([](const auto&) { return true; }).size();
}
constexpr std::size_t few = 30;  // mappings that allocators make now and then
std::size_t descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST_CASE("aliased pages: they show the segment, with their content, and are private again at the end") {
  world w;
  const pages mine{8};
  auto alias = w.alias(mine);
  CHECK(mine.are_shared());
  CHECK(mine.keep_their_numbers());
  CHECK(pages::numbers_at(w.image(), mine.bytes()));
  w.image()[5] = std::byte{99};
  CHECK(mine.at()[5] == std::byte{99});
  mine.at()[5] = pages::number(5);
  CHECK(w.image()[5] == pages::number(5));

  REQUIRE(alias.end());
  CHECK_FALSE(mine.are_shared());
  CHECK(mine.keep_their_numbers());
  std::memset(w.image(), 1, mine.bytes());
  CHECK(mine.keep_their_numbers());
  CHECK(alias.end());
}

TEST_CASE("aliased pages: what is unmapped is left alone, and what lies there then") {
  world w;
  pages mine{8};
  auto alias = w.alias(mine);
  const std::size_t half = mine.bytes() / 2;
  REQUIRE(::munmap(mine.at(), half) == 0);
  const int file = ::memfd_create("other", MFD_CLOEXEC);
  REQUIRE(::ftruncate(file, static_cast<off_t>(half)) == 0);
  REQUIRE(::mmap(mine.at(), half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == mine.at());
  ::close(file);
  mine.at()[0] = std::byte{42};
  REQUIRE(alias.end());
  CHECK(mine.are_shared());  // another's
  CHECK(mine.at()[0] == std::byte{42});
  const auto rest = areas_in(mine.begin() + half, mine.begin() + mine.bytes());
  REQUIRE(rest.size() == 1);
  CHECK(rest.front().permissions == "rw-p");
  CHECK(mine.at()[half] == pages::number(half));
}

TEST_CASE("aliased pages: where realloc() has moved them, they become private there") {
  world w;
  pages mine{8};
  auto alias = w.alias(mine);
  void* const moved = ::mremap(mine.at(), mine.bytes(), mine.bytes() + page_bytes(), MREMAP_MAYMOVE);
  REQUIRE(moved != MAP_FAILED);
  ::mremap(moved, mine.bytes() + page_bytes(), mine.bytes(), 0);
  mine.moved_to(static_cast<std::byte*>(moved));
  CHECK(mine.are_shared());
  REQUIRE(alias.end());
  CHECK_FALSE(mine.are_shared());
  CHECK(mine.keep_their_numbers());
}

TEST_CASE("aliased pages: a child made by fork() has a private copy, of that moment") {
  world w;
  const pages mine{8}, other{8};
  auto alias = w.alias(mine);
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char go = 0;
    if (::read(ready[0], &go, 1) != 1) ::_exit(2);
    if (!mine.keep_their_numbers() || mine.are_shared()) ::_exit(3);
    std::memset(mine.at(), 3, mine.bytes());  // nobody else sees it
    ::_exit(in_child([&] { return mine.at()[9] == std::byte{3} ? 0 : 4; }));
  }
  mine.at()[9] = std::byte{77};
  REQUIRE(::write(ready[1], "x", 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(mine.are_shared());
  CHECK(mine.at()[9] == std::byte{77});
  CHECK(mine.at()[10] == pages::number(10));
  mine.at()[9] = pages::number(9);
  REQUIRE(alias.end());
  CHECK(mine.keep_their_numbers());
  CHECK(in_child([&] { return mine.keep_their_numbers() ? 0 : 1; }) == 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("aliased pages: a child lives without pages that MADV_DONTFORK keeps from it") {
  world w;
  const pages mine{8};
  const auto alias = w.alias(mine);
  REQUIRE(::madvise(mine.at() + page_bytes(), page_bytes(), MADV_DONTFORK) == 0);
  CHECK(in_child([&] {
          unsigned char resident = 0;
          const bool without = ::mincore(mine.at() + page_bytes(), 1, &resident) != 0;
          const std::size_t rest = 2 * page_bytes();
          for (std::size_t i = rest; i < mine.bytes(); ++i)
            if (mine.at()[i] != pages::number(i)) return 1;
          return without && areas_in(mine.begin() + rest, mine.begin() + rest + 1).at(0).permissions[3] == 'p' ? 0 : 2;
        }) == 0);
}

TEST_CASE("aliased pages: without a descriptor to list them a child has its copy all the same") {
  if (tutti_test::slow) return;  // sanitizers read /proc themselves
  world w;
  const pages mine{8};
  const auto alias = w.alias(mine);
  rlimit before{}, none{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  none = {0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const int child = in_child([&] {
    ::setrlimit(RLIMIT_NOFILE, &before);
    return mine.keep_their_numbers() && !mine.are_shared() ? 0 : 1;
  });
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(child == 0);
}

TEST_CASE("aliased pages: a child of a process with many of them has them all") {
  world w;
  const pages a{2}, b{3};
  const aliased_pages first{w.segment, 0, w.mapping.data(), a.at(), a.bytes(), a.areas()};
  const std::size_t at = 10 * page_bytes();
  const aliased_pages second{w.segment, at, w.mapping.data() + at, b.at(), b.bytes(), b.areas()};
  CHECK(in_child([&] {
          const bool both = a.keep_their_numbers() && b.keep_their_numbers() && !a.are_shared() && !b.are_shared();
          return both ? 0 : 1;
        }) == 0);
}

TEST_CASE("aliased pages: locked memory stays locked, and advice and protection are kept") {
  world w;
  const pages mine{8};
  REQUIRE(::mprotect(mine.at(), 4 * page_bytes(), PROT_READ | PROT_WRITE) == 0);
  REQUIRE(::madvise(mine.at(), mine.bytes(), MADV_HUGEPAGE) == 0);
  // Without the right to, or under a sanitizer, whose mlock() does nothing, there is no locked memory.
  if (tutti_test::slow || ::mlock(mine.at(), 2 * page_bytes()) != 0) return;
  const auto flags = [&](std::size_t page, const char* flag) {
    const std::uintptr_t p = mine.begin() + page * page_bytes();
    return areas_in(p, p + page_bytes()).front().has(flag);
  };
  auto alias = w.alias(mine);
  CHECK(flags(0, "lo"));
  CHECK_FALSE(flags(2, "lo"));
  REQUIRE(::mprotect(mine.at() + 6 * page_bytes(), page_bytes(), PROT_NONE) == 0);
  REQUIRE(alias.end());
  CHECK(flags(1, "lo"));
  CHECK_FALSE(flags(2, "lo"));
  CHECK(flags(0, "hg"));
  CHECK(flags(7, "hg"));
  CHECK_FALSE(flags(6, "rd"));
  REQUIRE(::mprotect(mine.at(), mine.bytes(), PROT_READ) == 0);
  CHECK(mine.keep_their_numbers());
}

TEST_CASE("aliased pages: what is kept out of core dumps and huge pages stays out of them") {
  world w;
  const pages mine{8};
  REQUIRE(::madvise(mine.at(), 3 * page_bytes(), MADV_DONTDUMP) == 0);
  const bool knows_huge = ::madvise(mine.at() + page_bytes(), page_bytes(), MADV_NOHUGEPAGE) == 0;
  const auto check_flags = [&] {
    const auto flags = [&](std::size_t page) {
      const std::uintptr_t p = mine.begin() + page * page_bytes();
      return areas_in(p, p + page_bytes()).front();
    };
    CHECK(flags(0).has("dd"));
    CHECK_FALSE(flags(0).has("nh"));
    CHECK(flags(1).has("nh") == knows_huge);
    CHECK_FALSE(flags(3).has("dd"));
  };
  check_flags();
  auto alias = w.alias(mine);
  check_flags();
  CHECK(mine.keep_their_numbers());
  REQUIRE(alias.end());
  check_flags();
  CHECK(mine.keep_their_numbers());
}

TEST_CASE("aliased pages: the policy of mbind() is kept, and the segment loses it at the end") {
  world w;
  const pages mine{8}, other{8};
  const unsigned long first_node = 1;
  if (::syscall(SYS_mbind, mine.at(), 4 * page_bytes(), MPOL_BIND, &first_node, 8, 0) != 0) return;  // no policies
  const auto is_bound = [](const std::byte* p) { return !tutti::os::memory_policy::of(p).is_default(); };
  const std::size_t maps = lines_of_maps();
  auto alias = w.alias(mine);
  CHECK(is_bound(mine.at() + 3 * page_bytes()));
  CHECK_FALSE(is_bound(mine.at() + 4 * page_bytes()));
  CHECK(lines_of_maps() <= maps + few);
  CHECK(mine.keep_their_numbers());
  REQUIRE(alias.end());
  CHECK(is_bound(mine.at() + 3 * page_bytes()));
  CHECK_FALSE(is_bound(mine.at() + 4 * page_bytes()));
  CHECK(mine.keep_their_numbers());
  auto later = w.alias(other);
  CHECK_FALSE(is_bound(other.at()));
  CHECK_FALSE(is_bound(w.image()));
}

TEST_CASE("aliased pages: without memory for a private copy they stay, and end later") {
  if (tutti_test::slow) return;  // sanitizers end the process if they have no memory
  world w;
  const pages mine{16};
  auto alias = w.alias(mine);
  rlimit before{}, none{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  none = {4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &none) == 0);
  const bool ended = alias.end();
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK_FALSE(ended);
  CHECK(mine.are_shared());
  CHECK(mine.keep_their_numbers());
  CHECK(alias.end());
  CHECK(mine.keep_their_numbers());
}

TEST_CASE("aliased pages: a thousand times leave neither mappings nor descriptors behind") {
  world w;
  const pages mine{8};
  std::size_t maps = 0, open = 0;
  for (int i = 0; i < 1000; ++i) {
    auto alias = w.alias(mine);
    REQUIRE(alias.end());
    if (i == 2) {
      maps = lines_of_maps();
      open = descriptors();
    }
  }
  CHECK(lines_of_maps() <= maps + few);
  CHECK(descriptors() == open);
  CHECK(mine.keep_their_numbers());
}

}  // namespace
