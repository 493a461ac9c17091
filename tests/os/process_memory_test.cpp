#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <tutti/os/process_memory.hpp>

#include "support/forked_child.hpp"

namespace {

using tutti::os::kernel_copies;
using tutti::os::read_process;
using tutti::os::write_process;

std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

/// The errno with which another process may not be read here at all; 0 where it may.
int forbidden(::pid_t child) {
  char c = 0;
  static const char here = 1;
  return read_process(child, &c, address(&here), 1);
}

}  // namespace

TEST_CASE("process_memory: bytes of another process are read, and written, wherever they begin and end") {
  constexpr std::size_t most = 3 * 4096 + 7;
  std::vector<unsigned char> data(most);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(0));
  tutti_test::forked_child child{[] { return ::pause(); }};
  if (const int why = forbidden(child.pid())) {
    MESSAGE("not looked at: this machine does not let a process read its child: " << std::strerror(why));
    return;
  }
  std::vector<unsigned char> copy(most, 0xee), wanted(most, 0xee);
  REQUIRE(read_process(child.pid(), &copy[5], address(&data[1]), most - 9) == 0);
  std::copy_n(&data[1], most - 9, &wanted[5]);
  CHECK(copy == wanted);

  const std::vector<unsigned char> fresh(most, 0x77);
  REQUIRE(write_process(child.pid(), address(&data[3]), &fresh[0], 5000) == 0);
  REQUIRE(read_process(child.pid(), copy.data(), address(data.data()), most) == 0);
  wanted = data;
  std::fill_n(&wanted[3], 5000, static_cast<unsigned char>(0x77));
  CHECK(copy == wanted);
  CHECK(data[3] == 3);  // the child's, not this process'

  CHECK(read_process(child.pid(), copy.data(), 16, 8) == EFAULT);
  const ::pid_t gone = child.pid();
  child.signal(SIGKILL);
  child.wait();
  CHECK(read_process(gone, copy.data(), address(data.data()), 8) == ESRCH);
  CHECK(write_process(gone, address(data.data()), copy.data(), 8) == ESRCH);
}

TEST_CASE("process_memory: the kernel tells what it does not copy") {
  const std::size_t page = 4096;
  auto* p = static_cast<char*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(p != MAP_FAILED);
  if (!kernel_copies(p, 2 * page)) {
    MESSAGE("not looked at: this machine does not let a process read itself");
    ::munmap(p, 2 * page);
    return;
  }
  CHECK(kernel_copies(p, 1));
  CHECK_FALSE(kernel_copies(p, 0));
  REQUIRE(::mprotect(p + page, page, PROT_NONE) == 0);
  CHECK(kernel_copies(p, page));
  CHECK_FALSE(kernel_copies(p, page + 1));
  CHECK_FALSE(kernel_copies(p + page, 1));
  ::munmap(p, 2 * page);
}
