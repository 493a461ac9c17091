#include <tutti/os/write_all.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <thread>
#include <vector>

TEST_CASE("write_all: more than a pipe holds, and nothing") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  std::vector<std::byte> sent(1 << 20), got;
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 % 251);
  {
    const std::jthread reader{[&] {
      std::array<std::byte, 5000> some;
      for (::ssize_t n = 0; (n = ::read(ends[0], some.data(), some.size())) > 0;)
        got.insert(got.end(), some.begin(), some.begin() + n);
    }};
    CHECK(tutti::os::write_all(ends[1], sent) == 0);
    CHECK(tutti::os::write_all(ends[1], {}) == 0);
    ::close(ends[1]);
  }
  ::close(ends[0]);
  CHECK(got == sent);
}

TEST_CASE("write_all: the errno of what failed") {
  const std::array<std::byte, 1> one{};
  CHECK(tutti::os::write_all(-1, one) == EBADF);
}
