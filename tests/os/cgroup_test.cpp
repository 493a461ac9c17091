#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include <tutti/os/cgroup.hpp>

#include "support/temporary_directory.hpp"

namespace detail = tutti::os::detail;

TEST_CASE("cgroup: a number is what a text begins with") {
  CHECK(detail::parse_number("100000\n") == 100000);
  CHECK(detail::parse_number("0") == 0);
  CHECK(detail::parse_number("18446744073709551615") == 18446744073709551615U);
  for (const char* none : {"", " 1", "-1", "18446744073709551616"}) {
    CAPTURE(none);
    CHECK_FALSE(detail::parse_number(none).has_value());
  }
}

TEST_CASE("cgroup: a field is found at the beginning of a line only") {
  const char* text = "file 7\ninactive_file 12\nword\n";
  CHECK(detail::field_of(text, "file") == 7);
  CHECK(detail::field_of(text, "inactive_file") == 12);
  CHECK_FALSE(detail::field_of(text, "word").has_value());
  CHECK_FALSE(detail::field_of(text, "active_file").has_value());
}

TEST_CASE("cgroup: the files of control groups and of /proc are understood") {
  CHECK(detail::field_of("cache 12\ninactive_file 34\n", "inactive_file").value() == 34);
  CHECK(detail::field_of("MemTotal:  5 kB\nMemAvailable:     77 kB\n", "MemAvailable:").value() == 77);
  CHECK_FALSE(detail::field_of("a 1\n", "b").has_value());
  CHECK_FALSE(detail::field_of("", "b").has_value());
  CHECK_FALSE(detail::parse_number("max").has_value());
  CHECK(detail::parse_number("100000 100000").value() == 100000);
}

TEST_CASE("cgroup: a file without a number, or none, says no limit") {
  const tutti_test::temporary_directory folder;
  std::ofstream(folder.file("limit")) << "4096\n";
  std::ofstream(folder.file("none")) << "max\n";
  CHECK(detail::number_in(folder.file("limit")) == 4096);
  CHECK_FALSE(detail::number_in(folder.file("none")).has_value());
  CHECK_FALSE(detail::number_in(folder.file("missing")).has_value());
}

TEST_CASE("cgroup: the groups around a process lead up to the mount point, each inside of the next") {
  for (const char* controller : {"cpu", "memory"}) {
    const auto all = detail::cgroup_directories(controller);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(all[i]);
      CHECK(all[i].rfind("/sys/fs/cgroup", 0) == 0);
      if (i > 0) CHECK(all[i - 1].rfind(all[i] + "/", 0) == 0);
    }
  }
  if (const auto cpus = tutti::os::cgroup_cpu_limit()) CHECK(*cpus >= 1);
}
