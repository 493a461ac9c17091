#pragma once
#include <sched.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

namespace tutti_test {

/// While it lives, this thread and those that it starts run on one CPU.
class on_one_cpu {
 public:
  on_one_cpu() {
    check(::sched_getaffinity(0, sizeof before_, &before_));
    std::size_t first = 0;
    while (!CPU_ISSET(first, &before_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    check(::sched_setaffinity(0, sizeof one, &one));
  }
  on_one_cpu(const on_one_cpu&) = delete;
  on_one_cpu& operator=(const on_one_cpu&) = delete;
  ~on_one_cpu() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  static void check(int result) {
    if (result != 0) throw std::system_error(errno, std::generic_category(), "the CPUs of a test");
  }

  cpu_set_t before_;
};

}  // namespace tutti_test
