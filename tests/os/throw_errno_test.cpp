#include <doctest/doctest.h>

#include <cerrno>
#include <string>

#include <tutti/os/throw_errno.hpp>

using tutti::errc;

namespace {

tutti::error thrown_for(int cause) {
  try {
    tutti::os::throw_errno(cause, "cannot do it");
  } catch (const tutti::error& e) {
    return e;
  }
}

bool says(const tutti::error& e, const char* part) { return std::string(e.what()).find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a lack of something is told from a call that failed") {
  for (const int cause : {ENOMEM, ENOSPC, EDQUOT, EMFILE, ENFILE, ENOBUFS}) {
    CAPTURE(cause);
    CHECK(tutti::os::classify_errno(cause) == errc::out_of_resources);
  }
  for (const int cause : {EPERM, EACCES, EINVAL, ENOENT, ECONNREFUSED}) {
    CAPTURE(cause);
    CHECK(tutti::os::classify_errno(cause) == errc::system);
  }
}

TEST_CASE("throw_errno says what failed, why, and what helps") {
  const auto plain = thrown_for(EACCES);
  CHECK(plain.kind() == errc::system);
  CHECK(plain.cause().detail == EACCES);
  CHECK(plain.peer() == -1);
  CHECK(says(plain, "cannot do it: Permission denied"));
  CHECK_FALSE(says(plain, "raise the limit"));

  const auto mine = thrown_for(EMFILE), machine = thrown_for(ENFILE);
  CHECK(mine.kind() == errc::out_of_resources);
  CHECK(says(mine, "raise the limit: ulimit -n"));
  CHECK(says(machine, "raise the limit: sysctl fs.file-max"));
}
