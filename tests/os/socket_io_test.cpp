#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <span>
#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>
#include <utility>
#include <vector>

using namespace tutti::os;

namespace {
std::pair<fd, fd> pair_of_sockets() {
  int both[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both) == 0);
  return {fd{both[0]}, fd{both[1]}};
}
bool is(const io_result& r, std::size_t bytes, int error, bool closed) {
  return r.bytes == bytes && r.error == error && r.closed == closed;
}
}  // namespace

TEST_CASE("socket_io: nothing there, nothing asked for and the end of a stream are told apart") {
  auto [a, b] = pair_of_sockets();
  std::array<std::byte, 4> room{};
  const std::array<iovec, 1> list{iovec{room.data(), room.size()}};
  CHECK(is(receive_some(a.native(), room), 0, EAGAIN, false));
  CHECK(is(receive_some(a.native(), list), 0, EAGAIN, false));
  CHECK(receive_some(a.native(), room).would_block());
  const std::array<std::byte, 2> word{std::byte{7}, std::byte{9}};
  CHECK(is(send_some(b.native(), word), 2, 0, false));
  CHECK(is(receive_some(a.native(), room), 2, 0, false));
  CHECK(room[1] == std::byte{9});
  b.reset();
  CHECK(is(receive_some(a.native(), std::span<std::byte>{}), 0, 0, false));
  CHECK(is(receive_some(a.native(), std::span<const iovec>{}), 0, 0, false));
  CHECK(is(receive_some(a.native(), room), 0, 0, true));
  CHECK(is(receive_some(a.native(), list), 0, 0, true));
  CHECK(is(send_some(a.native(), word), 0, EPIPE, true));  // and no signal, which would end this program
  const std::array<iovec, 1> words{iovec{room.data(), 2}};
  CHECK(is(send_some(a.native(), words), 0, EPIPE, true));
  CHECK(is(receive_some(-1, room), 0, EBADF, true));
}

TEST_CASE("socket_io: of more pieces than the kernel takes, the first are moved") {
  auto [a, b] = pair_of_sockets();
  std::vector<std::byte> out(IOV_MAX + 10), in(out.size());
  std::vector<iovec> from, to;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(i % 251);
    from.push_back({&out[i], 1});
    to.push_back({&in[i], 1});
  }
  CHECK(is(send_some(a.native(), from), IOV_MAX, 0, false));
  CHECK(is(send_some(a.native(), std::span{from}.subspan(IOV_MAX)), 10, 0, false));
  CHECK(is(receive_some(b.native(), to), IOV_MAX, 0, false));
  CHECK(is(receive_some(b.native(), std::span{to}.subspan(IOV_MAX)), 10, 0, false));
  CHECK(in == out);
}
