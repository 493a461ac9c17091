#include <doctest/doctest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include <tutti/os/memory_policy.hpp>

namespace {

using tutti::os::memory_policy;

TEST_CASE("memory policy: that of a page is known, and other pages get it and lose it") {
  constexpr std::size_t bytes = 65536;
  const auto pages = [] {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    return static_cast<std::byte*>(p);
  };
  std::byte *const a = pages(), *const b = pages();
  CHECK(memory_policy::of(a).is_default());
  const unsigned long first_node = 1;
  if (::syscall(SYS_mbind, a, bytes, MPOL_BIND, &first_node, 8, 0) == 0) {  // where there are policies
    const memory_policy bound = memory_policy::of(a);
    CHECK_FALSE(bound.is_default());
    CHECK(memory_policy::of(b).is_default());
    bound.apply(b, bytes);
    CHECK(memory_policy::of(b) == bound);
    CHECK(memory_policy::of(b + bytes - 1) == bound);
    memory_policy{}.apply(b, bytes);
    CHECK(memory_policy::of(b).is_default());
  }
  ::munmap(a, bytes);
  ::munmap(b, bytes);
}

}  // namespace
