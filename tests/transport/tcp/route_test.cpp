#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <tutti/transport/tcp/route.hpp>

namespace {

using tutti::detail::stripe_cursor;
using tutti::detail::way;
using tutti::detail::way_chooser;

/// Two ranks and where the next piece of each goes.
struct two {
  way_chooser low, high;
  way of_low{}, of_high{};
  explicit two(int rails = 1) : low(0, 1, rails), high(1, 0, rails) {}

  int last[2] = {-1, -1};  // who wrote last to the connection that the lower, the higher rank opened
  int alone = 0;           // messages that followed another of the same rank there: one had to be acknowledged alone

  void count(int who, way w) {
    int& before = last[w.against ? 1 - who : who];
    alone += before == who;
    before = who;
  }
  // What each has read of the other's that went against its stream.
  std::uint16_t low_read = 0, high_read = 0;
  void low_sends(std::size_t bytes) {
    const way w = of_low;
    count(0, w);
    of_low = low.after(w, bytes);
    high.heard(w, low_read);
    high_read += w.against;
  }
  void high_sends(std::size_t bytes) {
    const way w = of_high;
    count(1, w);
    of_high = high.after(w, bytes);
    low.heard(w, high_read);
    low_read += w.against;
  }
  /// Both send before they hear; true if each takes a connection of its own.
  bool exchange(std::size_t bytes) {
    const way a = of_low, b = of_high;
    count(0, a);
    count(1, b);
    of_low = low.after(a, bytes);
    of_high = high.after(b, bytes);
    high.heard(a, low_read);
    low.heard(b, high_read);
    low_read += b.against;
    high_read += a.against;
    return a.against == b.against;
  }
};

TEST_CASE("route: a number for each, and back") {
  for (std::uint8_t n = 0; n < 32; ++n) CHECK(way::of(n).number() == n);
  CHECK(way{}.number() == 0);
  CHECK(way{1, true}.number() == 3);
}

TEST_CASE("route: who answers short messages takes both connections in turn, and never the peer's") {
  two w;
  for (int i = 0; i < 20; ++i) (void)w.exchange(36);
  for (int i = 0; i < 50; ++i) {
    const bool before = w.of_low.against;
    CHECK(w.exchange(36));
    CHECK(w.of_low.against != before);
    if (i == 0) w.alone = 0;
  }
  CHECK(w.alone == 0);
}

TEST_CASE("route: two that have come out of step find back") {
  for (int alone = 0; alone < 5; ++alone)
    for (int who = 0; who < 2; ++who) {
      two w;
      for (int i = 0; i < 21; ++i) (void)w.exchange(36);
      for (int i = 0; i < alone; ++i) who == 0 ? w.low_sends(36) : w.high_sends(36);
      for (int i = 0; i < 6; ++i) (void)w.exchange(36);
      for (int i = 0; i < 20; ++i) CHECK(w.exchange(36));
    }
}

TEST_CASE("route: questions and answers take the connections so that none is acknowledged alone") {
  for (int who = 0; who < 2; ++who) {
    two w;
    for (int i = 0; i < 50; ++i) {
      if (i == 10) w.alone = 0;
      who == 0 ? w.low_sends(36) : w.high_sends(36);
      who == 0 ? w.high_sends(36) : w.low_sends(36);
    }
    CHECK(w.alone == 0);
  }
}

TEST_CASE("route: to who reads nothing no more go against its stream than it has room for, and again when it reads") {
  two w;
  for (int i = 0; i < 21; ++i) (void)w.exchange(36);
  int unread = 0;
  for (int i = 0; i < 20; ++i) {
    w.high.heard({}, w.low_read);  // a question, asked before anything was read
    unread += w.of_high.against;
    w.of_high = w.high.after(w.of_high, 36);
  }
  CHECK(unread == way_chooser::most_unread);
  w.low_read = static_cast<std::uint16_t>(w.low_read + unread);
  for (int i = 0; i < 6; ++i) (void)w.exchange(36);
  for (int i = 0; i < 20; ++i) CHECK(w.exchange(36));
}

TEST_CASE("route: the number of pieces that were read comes round") {
  two w;
  int against = 0;
  for (int i = 0; i < 200000; ++i) {
    against += w.of_low.against;
    (void)w.exchange(36);
  }
  CHECK(against > 65536);
}

TEST_CASE("route: with the stream go long messages, what nobody answers, and stripes") {
  two w;
  for (int i = 0; i < 20; ++i) {
    (void)w.exchange(way_chooser::most_against + 1);
    CHECK_FALSE(w.of_low.against);
  }
  for (int i = 0; i < 20; ++i) {
    w.low_sends(36);
    CHECK_FALSE(w.of_low.against);
  }
  two many{3};
  for (int i = 0; i < 20; ++i) {
    CHECK(many.of_low.rail == i % 3);
    CHECK(many.low.most() == stripe_cursor::stripe_bytes);
    (void)many.exchange(stripe_cursor::stripe_bytes);
    CHECK_FALSE(many.of_low.against);
  }
}

}  // namespace
