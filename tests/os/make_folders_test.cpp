#include <tutti/os/make_folders.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "support/temporary_directory.hpp"

using tutti::os::make_folders;

TEST_CASE("make_folders: makes those above, too, and takes what is there") {
  const tutti_test::temporary_directory folder;
  const std::string deep = folder.file("a/b/c");
  CHECK(make_folders(deep) == 0);
  struct stat made{};
  REQUIRE(::stat(deep.c_str(), &made) == 0);
  CHECK(S_ISDIR(made.st_mode));
  CHECK(make_folders(deep) == 0);
  CHECK(make_folders(deep + "/") == 0);
  CHECK(make_folders(folder.file("a//d/")) == 0);
  CHECK(::stat(folder.file("a/d").c_str(), &made) == 0);
  CHECK(make_folders("/") == 0);
}

TEST_CASE("make_folders: a file in the way is an error") {
  const tutti_test::temporary_directory folder;
  std::ofstream{folder.file("file")} << "x";
  CHECK(make_folders(folder.file("file")) == EEXIST);
  CHECK(make_folders(folder.file("file/below")) != 0);
  CHECK(make_folders("") == ENOENT);
}
