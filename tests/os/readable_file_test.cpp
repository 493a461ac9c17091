#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <tutti/core/error.hpp>
#include <tutti/os/readable_file.hpp>

#include "support/temporary_directory.hpp"

using tutti::os::readable_file;

TEST_CASE("readable_file: reads at any place; what is not there is an error that names the file") {
  const tutti_test::temporary_directory folder;
  const std::string path = folder.file("f");
  std::ofstream(path, std::ios::binary) << "0123456789";
  const readable_file read{path};
  CHECK(read.size() == 10);
  CHECK(read.path() == path);
  const auto text = [&](std::uint64_t from, std::size_t bytes) {
    std::string some(bytes, '\0');
    read.read(from, std::as_writable_bytes(std::span{some}));
    return some;
  };
  CHECK(text(4, 3) == "456");
  CHECK(text(0, 10) == "0123456789");
  CHECK(text(99, 0) == "");
  std::filesystem::resize_file(path, 6);
  CHECK(text(4, 2) == "45");
  try {
    (void)text(4, 3);
    FAIL("no error");
  } catch (const tutti::error& e) {
    CHECK(e.cause().detail == EIO);
    CHECK(std::string{e.what()}.find(path + ", which became shorter") != std::string::npos);
  }
}

TEST_CASE("readable_file: only regular files are opened") {
  const tutti_test::temporary_directory folder;
  CHECK_THROWS_AS(readable_file(folder.file("none")), tutti::error);
  CHECK_THROWS_AS(readable_file(folder.path().string()), tutti::error);
  CHECK_THROWS_AS(readable_file("/dev/null"), tutti::error);
}
