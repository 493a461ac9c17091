#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <optional>
#include <tutti/os/descriptor_passing.hpp>
#include <utility>
#include <vector>

#include "support/descriptor_limit.hpp"

using namespace tutti::os;

namespace {

std::pair<fd, fd> pair_of_sockets() {
  int s[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
  return {fd{s[0]}, fd{s[1]}};
}

std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator{"/proc/self/fd"}) ++n;
  return n;
}

const std::array<std::byte, 4> greeting{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

}  // namespace

TEST_CASE("250 descriptors travel in one message and arrive close-on-exec") {
  auto [a, b] = pair_of_sockets();
  const fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  const std::vector<int> numbers(max_passed_descriptors, null.native());
  const auto before = open_descriptors();
  REQUIRE(send_descriptors(a.native(), greeting, numbers).bytes == greeting.size());
  {
    std::vector<fd> in(max_passed_descriptors);
    std::array<std::byte, 16> payload{};
    const auto r = receive_descriptors(b.native(), payload, in);
    CHECK(r.io.bytes == greeting.size());
    CHECK(r.io.error == 0);
    REQUIRE(r.descriptors == max_passed_descriptors);
    CHECK(payload[3] == std::byte{4});
    for (const fd& f : in) CHECK((::fcntl(f.native(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a message without descriptors is a plain message") {
  auto [a, b] = pair_of_sockets();
  REQUIRE(send_descriptors(a.native(), greeting, {}).bytes == greeting.size());
  std::array<fd, 2> in;
  std::array<std::byte, 16> payload{};
  CHECK(receive_descriptors(b.native(), payload, in).descriptors == 0);
  CHECK(receive_descriptors(b.native(), payload, in).io.would_block());
  a.reset();
  CHECK(receive_descriptors(b.native(), payload, in).io.closed);
}

TEST_CASE("empty payloads and too many descriptors are refused before the kernel sees them") {
  auto [a, b] = pair_of_sockets();
  const std::vector<int> many(max_passed_descriptors + 1, a.native());
  CHECK(send_descriptors(a.native(), greeting, many).error == EINVAL);
  CHECK(send_descriptors(a.native(), {}, {}).error == EINVAL);
}

TEST_CASE("descriptors that were not asked for are closed, not leaked") {
  auto [a, b] = pair_of_sockets();
  const std::vector<int> five(5, a.native());
  std::array<fd, 2> in;
  std::array<std::byte, 16> payload{};
  const auto before = open_descriptors();
  REQUIRE(send_descriptors(a.native(), greeting, five).bytes == greeting.size());
  const auto r = receive_descriptors(b.native(), payload, in);
  CHECK(r.io.error == EMSGSIZE);
  CHECK(r.descriptors == 0);
  CHECK_FALSE(in[0]);
  CHECK(open_descriptors() == before);
}

TEST_CASE("running out of numbers while receiving is an error that leaks nothing") {
  auto [a, b] = pair_of_sockets();
  const std::vector<int> five(5, a.native());
  REQUIRE(send_descriptors(a.native(), greeting, five).bytes == greeting.size());
  const auto before = open_descriptors();
  const fd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  std::optional<tutti_test::descriptor_limit> tight{next.native() + 3};
  std::array<fd, 5> in;
  std::array<std::byte, 16> payload{};
  const auto r = receive_descriptors(b.native(), payload, in);
  tight.reset();
  CHECK(r.io.error == EMSGSIZE);
  CHECK(r.descriptors == 0);
  CHECK(open_descriptors() == before + 1);
}
