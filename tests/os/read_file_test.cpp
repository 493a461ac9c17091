#include <doctest/doctest.h>

#include <cerrno>
#include <fstream>
#include <string>

#include <tutti/os/read_file.hpp>

#include "support/temporary_directory.hpp"

using tutti::os::read_file;

TEST_CASE("read_file gives a file's bytes, and no more than it is allowed to") {
  const tutti_test::temporary_directory folder;
  const std::string path = folder.file("small"), words("a\0b\nc", 5);
  std::ofstream(path, std::ios::binary) << words;
  CHECK(read_file(path) == words);
  CHECK(read_file(path, 5) == words);
  CHECK(read_file(path, 3) == words.substr(0, 3));
  std::ofstream(folder.file("empty"), std::ios::binary);
  CHECK(read_file(folder.file("empty")) == "");
}

TEST_CASE("read_file gives nothing for what cannot be read, and leaves errno alone") {
  const tutti_test::temporary_directory folder;
  errno = 77;
  CHECK_FALSE(read_file(folder.file("missing")).has_value());
  CHECK_FALSE(read_file(folder.path().string()).has_value());  // a directory opens, and cannot be read
  CHECK(errno == 77);
}

TEST_CASE("read_file reads what the kernel makes up as it is read") {
  const auto status = read_file("/proc/self/status");
  REQUIRE(status.has_value());
  CHECK(status->find("\nPid:") != std::string::npos);
}
