#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/transport/tcp/watch.hpp>

#include "transport/pipes_over_tcp.hpp"

namespace {

using namespace std::chrono_literals;
using namespace pipe_pair;
using tutti::detail::polling_rhythm;
using tutti::detail::tcp_link;
using tutti::detail::tcp_poller;
using tutti::detail::tcp_watch;
using source = tcp_poller::source;

/// Two connections with peer 1, which a poller hears of.
struct watched {
  over_tcp streams;
  tcp_poller poller{1};
  std::vector<tcp_link> links = std::vector<tcp_link>(2);
  tcp_watch watch{poller, links};
  std::uint64_t received = 0;

  watched() {
    links[1].stream = &streams.a;
    watch.renew(1);
  }
  /// So many polls each of which finds something.
  void poll(std::uint32_t times) {
    constexpr std::array peers{1};
    for (std::uint32_t i = 0; i < times; ++i) {
      (void)watch.is_due(++received);
      watch.leave_to_polls(peers);
    }
  }
  [[nodiscard]] bool hears(source s, bool of_room = false) {
    bool any = false;
    for (const auto& e : poller.wait(1ms))
      any = any || (tcp_poller::source_of(e) == s && tcp_poller::index_of(e) == 1 && (!of_room || e.writable));
    return any;
  }
};

TEST_CASE("the poller hears of a peer until it is asked often enough, and then not until it is not any more") {
  watched w;
  std::byte some[8]{};
  REQUIRE(w.streams.b.write(some, {}) == sizeof some);
  w.streams.b.tell({tutti::detail::control_message::kind::bye, {}});
  w.poll(polling_rhythm::enough - 1);
  CHECK_FALSE(w.links[1].unwatched);
  CHECK(w.hears(source::in));
  CHECK(w.hears(source::out));
  w.poll(1);
  CHECK(w.links[1].unwatched);
  CHECK_FALSE(w.hears(source::in));
  CHECK_FALSE(w.hears(source::out));
  SUBCASE("as all are watched") { w.watch.all(); }
  SUBCASE("as nothing is awaited from it") { w.watch.one(1); }
  SUBCASE("as nothing comes") {
    for (std::uint32_t i = 1; i < polling_rhythm::long_while; ++i) (void)w.watch.is_due(w.received);
    CHECK(w.links[1].unwatched);
    CHECK(w.watch.is_due(w.received));
  }
  CHECK_FALSE(w.links[1].unwatched);
  CHECK(w.hears(source::in));
  CHECK(w.hears(source::out));
}

TEST_CASE("what is asked often enough only now and then stays watched") {
  watched w;
  std::byte some[8]{};
  REQUIRE(w.streams.b.write(some, {}) == sizeof some);
  for (int i = 0; i < 3; ++i) {
    w.poll(polling_rhythm::enough - 1);
    w.watch.all();
  }
  CHECK(w.hears(source::in));
}

TEST_CASE("the poller goes on hearing of room to write") {
  watched w;
  std::vector<std::byte> much(64 << 20);
  (void)w.streams.a.write({}, much);
  REQUIRE(w.streams.a.at(0, side::ours).full);
  w.watch.renew(1, 0, side::ours);
  w.poll(polling_rhythm::enough);
  CHECK_FALSE(w.hears(source::out, true));
  for (int i = 0; i < 1000 && !w.hears(source::out, true); ++i) {
    w.streams.b.try_now();
    (void)w.streams.b.read(much);
  }
  CHECK(w.hears(source::out, true));
}

}  // namespace
