#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/os/registrable.hpp>

#include <support/words.hpp>

namespace {

using tutti_test::contains;

std::string why_not(const void* p, std::size_t bytes) {
  const std::uintptr_t page = tutti::os::page_bytes();
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(p) / page * page;
  const std::uintptr_t end = begin + (bytes + page - 1) / page * page;
  return tutti::os::why_not_registrable(tutti::os::areas_in(begin, end), begin, end);
}

struct mapped {
  static constexpr std::size_t bytes = 65536;
  std::byte* at;
  explicit mapped(int kind, int file = -1, int access = PROT_READ | PROT_WRITE)
      : at(static_cast<std::byte*>(::mmap(nullptr, bytes, access, kind, file, 0))) {
    REQUIRE(at != MAP_FAILED);
  }
  mapped(const mapped&) = delete;
  mapped& operator=(const mapped&) = delete;
  ~mapped() { ::munmap(at, bytes); }
};

TEST_CASE("registrable: memory of the heap is, at any address") {
  const std::vector<float> large(1 << 20), small(10000);
  CHECK(why_not(large.data(), large.size() * sizeof(float)) == "");
  CHECK(why_not(small.data(), small.size() * sizeof(float)) == "");
  const mapped whole{MAP_PRIVATE | MAP_ANONYMOUS};
  CHECK(why_not(whole.at, whole.bytes) == "");
}

TEST_CASE("registrable: other memory is not, and the reason says what it is") {
  const mapped shared{MAP_SHARED | MAP_ANONYMOUS};
  CHECK(contains(why_not(shared.at, shared.bytes), "shared memory already"));

  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  {
    const mapped of_file{MAP_PRIVATE, file};
    const std::string why = why_not(of_file.at, of_file.bytes);
    CHECK(contains(why, "a mapping of the file /"));
    CHECK(contains(why, "allocate()"));
  }
  ::close(file);

  const mapped read_only{MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_READ};
  CHECK(contains(why_not(read_only.at, read_only.bytes), "not readable and writable"));

  const mapped kept_from_children{MAP_PRIVATE | MAP_ANONYMOUS};
  REQUIRE(::madvise(kept_from_children.at + 8192, 4096, MADV_DONTFORK) == 0);
  CHECK(contains(why_not(kept_from_children.at, kept_from_children.bytes), "MADV_DONTFORK"));

  const mapped with_hole{MAP_PRIVATE | MAP_ANONYMOUS};
  REQUIRE(::munmap(with_hole.at + 16384, 4096) == 0);
  CHECK(contains(why_not(with_hole.at, with_hole.bytes), "not memory of this process from one end to the other"));
}

TEST_CASE("registrable: a stack is not, of the first thread or of another") {
  std::string here, there;
  const auto look = [](std::string& into) {
    volatile std::byte some[3 * 65536] = {};
    into = why_not(const_cast<std::byte*>(&some[0]), sizeof some);
  };
  look(here);
  std::thread other{[&] { look(there); }};
  other.join();
  CHECK(contains(here, "stack"));
  CHECK(contains(there, "stack"));
}

}  // namespace
