#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>

namespace {

using tutti::os::memory_area;

TEST_CASE("memory areas: a line of /proc/self/maps") {
  memory_area a;
  REQUIRE(tutti::os::detail::read_area("7f00a000-7f00c000 rw-s 0001a000 00:01 1047   /memfd:some name (deleted)", a));
  CHECK(a.begin == 0x7f00a000);
  CHECK(a.end == 0x7f00c000);
  CHECK(a.permissions == "rw-s");
  CHECK(a.offset == 0x1a000);
  CHECK(a.device == "00:01");
  CHECK(a.inode == 1047);
  CHECK(a.name == "/memfd:some name (deleted)");
  REQUIRE(tutti::os::detail::read_area("7f00a000-7f00c000 ---p 00000000 00:00 0 ", a));
  CHECK(a.name == "");
  CHECK(a.inode == 0);
  for (const char* other :
       {"", "Size:                  4 kB", "VmFlags: rd wr", "abc", "7f00a000-", "7f00a000-7f00c000"})
    CHECK_FALSE(tutti::os::detail::read_area(other, a));
}

TEST_CASE("memory areas: those of a range are cut to it, and tell their flags") {
  const std::size_t page = tutti::os::page_bytes();
  const int file = ::memfd_create("of this test", MFD_CLOEXEC);
  REQUIRE(::ftruncate(file, static_cast<off_t>(8 * page)) == 0);
  auto* const p = static_cast<std::byte*>(::mmap(nullptr, 8 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  REQUIRE(p != MAP_FAILED);
  REQUIRE(::mprotect(p + 4 * page, 4 * page, PROT_READ) == 0);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const auto found = tutti::os::areas_in(at + page, at + 6 * page);
  REQUIRE(found.size() == 2);
  CHECK(found[0].begin == at + page);
  CHECK(found[0].end == at + 4 * page);
  CHECK(found[0].offset == page);
  CHECK(found[0].permissions == "rw-s");
  CHECK(found[0].has("wr"));
  CHECK(found[0].name.find("of this test") != std::string::npos);
  CHECK(found[1].begin == at + 4 * page);
  CHECK(found[1].end == at + 6 * page);
  CHECK(found[1].offset == 4 * page);
  CHECK_FALSE(found[1].has("wr"));
  CHECK(found[1].has("rd"));

  const auto same = tutti::os::areas_that([&](const memory_area& a) { return a.inode == found[0].inode; });
  CHECK(same.size() == 2);
  REQUIRE(::munmap(p, 8 * page) == 0);
  CHECK(tutti::os::areas_in(at + page, at + 6 * page).empty());
  ::close(file);
}

}  // namespace
