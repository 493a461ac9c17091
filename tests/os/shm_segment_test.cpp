#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <support/forked_child.hpp>
#include <tutti/os/shm_segment.hpp>

using namespace tutti::os;
using tutti::errc;
using tutti_test::forked_child;

namespace {

constexpr std::uint64_t mib = 1 << 20;

errc kind_of_adopt(fd file, std::uint64_t bytes) {
  try {
    (void)shm_segment::adopt(std::move(file), bytes);
    return errc::ok;
  } catch (const tutti::error& e) {
    return e.kind();
  }
}

fd duplicate(const shm_segment& s) { return fd{::fcntl(s.native(), F_DUPFD_CLOEXEC, 3)}; }

}  // namespace

TEST_CASE("a segment is shared between processes") {
  auto s = shm_segment::create(100);
  CHECK(s.bytes() == page_bytes());
  CHECK((::fcntl(s.native(), F_GETFD) & FD_CLOEXEC) != 0);
  s.reserve(0, s.bytes());
  const auto mine = s.map();
  forked_child child{[&] {
    const auto theirs = shm_segment::adopt(duplicate(s), s.bytes()).map();
    theirs.data()[99] = std::byte{42};
    return 0;
  }};
  CHECK(child.wait() == 0);
  CHECK(mine.data()[99] == std::byte{42});
}

TEST_CASE("a segment may be far larger than the memory and cannot change its size") {
  auto s = shm_segment::create(64ULL << 30);
  s.reserve(32ULL << 30, mib);
  const auto whole = s.map();
  CHECK(whole.bytes() == 64ULL << 30);
  whole.data()[32ULL << 30] = std::byte{1};
  const auto part = s.map(32ULL << 30, page_bytes());
  CHECK(part.data()[0] == std::byte{1});
  CHECK(::ftruncate(s.native(), 0) != 0);
  CHECK(::ftruncate(s.native(), off_t{1} << 40) != 0);
}

TEST_CASE("moving a mapping moves the duty to unmap") {
  auto s = shm_segment::create(page_bytes());
  auto a = s.map();
  auto b = std::move(a);
  CHECK_FALSE(a);
  REQUIRE(b);
  a = std::move(b);
  REQUIRE(a);
  s = shm_segment{};
  a.data()[0] = std::byte{1};  // the mapping outlives the segment
  a.unmap();
  CHECK_FALSE(a);
}

TEST_CASE("reserving more memory than there is fails at once with a typed error") {
  auto s = shm_segment::create(std::uint64_t{1} << 46);
  try {
    s.reserve(0, s.bytes());
    FAIL("no error");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == errc::out_of_resources);
    CHECK(std::string{e.what()}.find("wanted 64 TiB, free are ") != std::string::npos);
  }
}

TEST_CASE("memory that the machine does not have is an error of reserve(), never a fault, and the rest stays usable") {
  auto s = shm_segment::create(std::uint64_t{64} << 40);
  s.reserve(0, mib / 2);
  const auto memory = s.map(0, mib / 2);
  std::memset(memory.data(), 1, mib / 2);
  try {
    s.reserve(mib / 2, std::uint64_t{32} << 40);
    FAIL("there is no such memory");
  } catch (const tutti::error& e) {
    const std::string text = e.what();
    CHECK(e.kind() == errc::out_of_resources);
    CHECK(e.cause().detail == ENOMEM);
    CHECK_MESSAGE(text.find("wanted 32 TiB, free are ") != std::string::npos, text);
  }
  CHECK(memory.data()[mib / 2 - 1] == std::byte{1});
  CHECK_NOTHROW(s.reserve(mib / 2, mib));
}

TEST_CASE("a segment from a peer is only taken if it cannot shrink and has the announced size") {
  const auto good = shm_segment::create(2 * page_bytes());
  CHECK(kind_of_adopt(duplicate(good), good.bytes()) == errc::ok);
  CHECK(kind_of_adopt(duplicate(good), page_bytes()) == errc::protocol);
  CHECK(kind_of_adopt(duplicate(good), 1 << 30) == errc::protocol);

  fd open_memory{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(open_memory.native(), static_cast<off_t>(page_bytes())) == 0);
  CHECK(kind_of_adopt(open_memory.duplicate(), page_bytes()) == errc::protocol);
  REQUIRE(::fcntl(open_memory.native(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CHECK(kind_of_adopt(open_memory.duplicate(), page_bytes()) == errc::protocol);

  CHECK(kind_of_adopt(fd{::open("/dev/zero", O_RDWR | O_CLOEXEC)}, page_bytes()) == errc::protocol);
  CHECK(kind_of_adopt(fd{}, page_bytes()) == errc::system);
}

TEST_CASE("sizes and ranges that cannot be are usage errors") {
  CHECK_THROWS_AS((void)shm_segment::create(0), tutti::usage_error);
  CHECK_THROWS_AS((void)shm_segment::create(~std::uint64_t{0}), tutti::usage_error);
  auto s = shm_segment::create(4 * page_bytes());
  CHECK_THROWS_AS(s.reserve(s.bytes(), 1), tutti::usage_error);
  CHECK_THROWS_AS(s.reserve(1, ~std::uint64_t{0}), tutti::usage_error);
  CHECK_NOTHROW(s.reserve(s.bytes(), 0));
  CHECK_THROWS_AS((void)s.map(1, 1), tutti::usage_error);
  CHECK_THROWS_AS((void)s.map(page_bytes(), s.bytes()), tutti::usage_error);
  CHECK_THROWS_AS((void)s.map(0, 0), tutti::usage_error);
}

TEST_CASE("bytes are printed for people") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(64ULL << 30) == "64 GiB");
}
