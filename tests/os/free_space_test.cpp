#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <support/forked_child.hpp>
#include <support/small_tmpfs.hpp>
#include <support/temporary_directory.hpp>
#include <tutti/os/free_space.hpp>

using tutti::os::free_space_of;

TEST_CASE("free_space: of the file system that a folder lies in, which two folders of it share") {
  const tutti_test::temporary_directory dir;
  const std::string path = dir.path().string(), inner = dir.file("inner");
  std::filesystem::create_directory(inner);
  const auto outside = free_space_of(path.c_str()), within = free_space_of(inner.c_str());
  REQUIRE((outside && within));
  CHECK(outside->device == within->device);
  CHECK_FALSE(free_space_of(dir.file("none").c_str()));
  tutti_test::forked_child child{[&] {
    if (!tutti_test::mount_small_tmpfs(inner, "1m")) return 0;
    const auto empty = free_space_of(inner.c_str());
    std::ofstream{inner + "/half"} << std::string(512 << 10, 'x');
    const auto half = free_space_of(inner.c_str());
    if (!empty || !half || empty->device == outside->device || half->device != empty->device) return 1;
    return empty->bytes == 1 << 20 && half->bytes == 512 << 10 ? 0 : 2;
  }};
  CHECK(child.wait() == 0);
}
