#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <tutti/core/error.hpp>
#include <tutti/os/atomic_file.hpp>
#include <tutti/os/readable_file.hpp>

#include "support/temporary_directory.hpp"

namespace {
using tutti::os::atomic_file;
using tutti::os::readable_file;

void write(atomic_file& file, std::string_view text) { file.write(std::as_bytes(std::span{text})); }
std::string text_of(const std::string& path) {
  const readable_file file{path};
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span{text}));
  return text;
}
int files_in(const tutti_test::temporary_directory& folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}
}  // namespace

TEST_CASE("atomic_file: the old bytes stay until commit(), and without it") {
  const tutti_test::temporary_directory folder;
  const std::string path = folder.file("f");
  {
    atomic_file first{path};
    write(first, "old");
    first.commit();
  }
  CHECK(text_of(path) == "old");
  {
    atomic_file second{path}, third{path};  // at the same time
    write(second, "new ");
    write(second, "bytes");
    write(third, "never");
    CHECK(text_of(path) == "old");
    second.commit();
    CHECK(text_of(path) == "new bytes");
  }
  CHECK(text_of(path) == "new bytes");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("atomic_file: a symbolic link stays, and what it names is replaced, or made") {
  const tutti_test::temporary_directory folder;
  std::filesystem::create_directory(folder.file("runs"));
  std::filesystem::create_symlink("runs/latest", folder.file("link"));
  std::filesystem::create_symlink(folder.file("runs/1"), folder.file("runs/latest"));
  for (const char* text : {"made", "replaced"}) {
    atomic_file f{folder.file("link")};
    write(f, text);
    f.commit();
    CHECK(text_of(folder.file("runs/1")) == text);
  }
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(std::filesystem::is_symlink(folder.file("runs/latest")));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.file("runs")), {}) == 2);
  std::filesystem::create_symlink("loop", folder.file("loop"));
  CHECK_THROWS_AS(atomic_file(folder.file("loop")), tutti::error);
}

TEST_CASE("atomic_file: a path that cannot be is an error that names it, and leaves nothing") {
  const tutti_test::temporary_directory folder;
  CHECK_THROWS_AS(atomic_file(folder.file("none/f")), tutti::error);
  {
    atomic_file over{folder.path().string() + "/"};
    CHECK_THROWS_AS(over.commit(), tutti::error);
  }
  std::filesystem::create_directory(folder.file("taken"));
  {
    atomic_file over{folder.file("taken")};
    CHECK_THROWS_AS(over.commit(), tutti::error);
  }
  CHECK(files_in(folder) == 1);
}
