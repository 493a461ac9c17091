#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "transport/tcp_by_hand.hpp"

namespace {

using namespace tcp_by_hand;

// Of struct tcp_info, by its place in the kernel's, as the C library's ends before it.
enum class counter : std::size_t { not_acknowledged = 24, bytes_not_sent = 144, data_segments_in = 152 };
std::uint32_t count_of(int socket, counter which) {
  std::array<std::byte, 256> info{};
  socklen_t bytes = info.size();
  REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.data(), &bytes) == 0);
  REQUIRE(bytes >= 160);
  std::uint32_t value = 0;
  std::memcpy(&value, info.data() + static_cast<std::size_t>(which), sizeof value);
  return value;
}

/// The socket of this process at the other end of this connection.
int other_end_of(int socket) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto mine = tutti::os::local_endpoint(socket), theirs = tutti::os::remote_endpoint(socket);
  for (int d = 3; d < static_cast<int>(limit.rlim_cur) && d < 4096; ++d)
    if (tutti::os::remote_endpoint(d) == mine && tutti::os::local_endpoint(d) == theirs) return d;
  FAIL("there is none");
  return -1;
}

struct burst : against {
  std::vector<std::byte> payload = drive::pattern(8, 1);
  std::vector<std::unique_ptr<drive::flight>> sends;
  int sender = -1;
  burst() {
    meet();
    sender = other_end_of(stream.native());
  }
  void send(std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) sends.push_back(d.send(1, 7, payload));
  }
  [[nodiscard]] bool arrives(std::size_t messages) const {
    const std::size_t bytes = messages * (head_bytes + payload.size());
    return raw_tcp::hear(stream, bytes).size() == bytes;
  }
};

TEST_CASE(
    "many short messages in a row share segments, and a poll and a sleep send what was left to follow with more") {
  burst w;
  w.send(16);
  CHECK(w.arrives(16));
  while (count_of(w.sender, counter::not_acknowledged) != 0) std::this_thread::sleep_for(1ms);
  const auto before = count_of(w.stream.native(), counter::data_segments_in);
  w.send(8);
  SUBCASE("a poll") {
    (void)w.until([i = 0]() mutable { return ++i > 2; });
  }
  SUBCASE("a sleep") {
    w.rank0->prepare_park();
    w.rank0->finish_park();
  }
  CHECK(count_of(w.sender, counter::bytes_not_sent) == 0);
  CHECK(w.arrives(8));
  CHECK(count_of(w.stream.native(), counter::data_segments_in) - before <= 4);
}

}  // namespace
