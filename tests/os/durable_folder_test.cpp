#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <tutti/core/error.hpp>
#include <tutti/os/durable_folder.hpp>
#include <vector>

#include "support/temporary_directory.hpp"

TEST_CASE("durable_folder: every folder that gets a new one is synced, and none where nothing is new") {
  const tutti_test::temporary_directory folder;
  using list = std::vector<std::string>;
  const std::string top = folder.path().string(), a = folder.file("a"), b = a + "/b";
  CHECK(tutti::os::make_durable_folder(b + "/c/") == list{top, a, b});
  CHECK(std::filesystem::is_directory(b + "/c"));
  CHECK(tutti::os::make_durable_folder(b + "/c").empty());
  CHECK(tutti::os::make_durable_folder("/").empty());
  CHECK_THROWS_AS(tutti::os::sync_folder(folder.file("none")), tutti::error);
}
