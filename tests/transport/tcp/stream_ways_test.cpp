#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <tutti/transport/tcp/route.hpp>
#include <tutti/transport/tcp/stream.hpp>

#include "transport/drive.hpp"
#include "transport/pipe_pair.hpp"

namespace {

using namespace pipe_pair;
using tutti::detail::way_chooser;

TEST_CASE("short messages that answer one another take the two connections in turn, never the same") {
  both w;
  for (int i = 0; i < 10; ++i) (void)exchange(w, 36);
  int apart = 0, against = 0;
  for (int i = 0; i < 100; ++i) {
    const auto out = drive::pattern(20, 3);
    if (i % 25 == 7) {  // one that nobody answers brings them out of step
      REQUIRE(w.b.write(out, {}) == 20);
      CHECK(take(w.a, 20, 20) == out);
    }
    REQUIRE(w.a.write(out, {}) == 20);
    against += waiting_at(w.b.at(0, side::ours)) != 0;
    CHECK(take(w.b, 20, 20) == out);
    REQUIRE(w.b.write(out, {}) == 20);
    CHECK(take(w.a, 20, 20) == out);
    apart += exchange(w, 36);
  }
  CHECK(apart >= 80);
  CHECK(against >= 30);
}

TEST_CASE("what nobody answers goes with the stream, and so do long messages") {
  both w{1 << 20};
  const auto short_one = drive::pattern(36, 1), long_one = drive::pattern(50000, 2);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(w.a.write(short_one, {}) == 36);
    CHECK(waiting_at(w.b.at(0, side::ours)) == 0);
    CHECK(take(w.b, 36, 36) == short_one);
  }
  // Whose turn it is when the long one comes does not matter.
  for (int before = 20; before < 24; ++before) {
    for (int i = 0; i < before; ++i) (void)exchange(w, 36);
    REQUIRE(w.a.write(long_one, {}) == long_one.size());
    CHECK(waiting_at(w.b.at(0, side::ours)) < 100);
    CHECK(take(w.b, long_one.size(), 9000) == long_one);
  }
}

TEST_CASE("notices and the pieces against a stream keep their order, whatever is read when") {
  for (const int buffer : {0, 2048}) {
    both w{buffer};
    std::mt19937 random{static_cast<unsigned>(buffer) + 5};
    const auto out = drive::pattern(1 << 20, 6);
    struct half {
      tcp_stream* to;
      tcp_stream* from;
      events* heard;
      std::vector<std::byte> in;
      std::size_t sent = 0, got = 0, begun = 0, ended = 0;
      std::uint64_t told = 0;
    } halves[2] = {{&w.a, &w.b, &w.ev_b, std::vector<std::byte>(out.size())},
                   {&w.b, &w.a, &w.ev_a, std::vector<std::byte>(out.size())}};
    std::size_t against = 0;
    for (int idle = 0; idle < 1000 && (halves[0].got < out.size() || halves[1].got < out.size()); ++idle) {
      for (half& h : halves) {
        if (h.sent == h.ended) h.ended = std::min(out.size(), h.sent + random() % (random() % 8 == 0 ? 60000 : 300));
        const std::size_t n = h.to->write(std::span{out}.subspan(h.sent, h.ended - h.sent), {});
        h.sent += n;
        if (random() % 16 == 0) h.to->tell({control_message::kind::waiting, {errc::ok, 0, 1, h.told++}});
        for (const side s : {side::ours, side::theirs}) {
          h.to->room(0, s);
          against += waiting_at(h.from->at(0, side::ours)) != 0;
          if (random() % 2 != 0 || !h.from->at(0, s).can_read()) continue;
          if (s == side::ours) h.heard->noticed(1, 0);
          if (s == side::theirs) h.from->arrived(0);
        }
        const std::size_t most = std::min<std::size_t>(random() % 5000, out.size() - h.got);
        if (random() % 2 != 0) h.from->try_now();
        const std::size_t m = h.from->read(std::span{h.in}.subspan(h.got, most));
        h.got += m;
        if (n + m != 0) idle = 0;
      }
    }
    CHECK(against > 100);
    for (half& h : halves) {
      REQUIRE(h.got == out.size());
      CHECK(h.in == out);
      for (int i = 0; i < 100; ++i) {
        h.to->room(0, side::theirs);
        h.heard->noticed(1, 0);
      }
      CHECK(h.heard->broken_calls == 0);
      REQUIRE(h.heard->heard.size() == h.told);
      for (std::uint64_t i = 0; i < h.told; ++i) CHECK(h.heard->heard[i] == i);
    }
  }
}

/// Brings it about that a short piece of a's goes against b's stream, and is there.
std::vector<std::byte> against(both& w) {
  const auto out = drive::pattern(36, 1);
  for (int i = 0; i < 10; ++i) (void)exchange(w, 36);
  for (;;) {
    REQUIRE(w.a.write(out, {}) == 36);
    if (waiting_at(w.b.at(0, side::ours)) != 0) return out;
    CHECK(take(w.b, 36, 36) == out);
    REQUIRE(w.b.write(out, {}) == 36);
    CHECK(take(w.a, 36, 36) == out);
  }
}

TEST_CASE("a notice is heard although a piece is before it that nobody has read, and the piece is not lost") {
  both w;
  const auto out = against(w);
  for (const std::uint64_t detail : {77U, 78U}) w.a.tell({control_message::kind::waiting, {errc::ok, 0, 1, detail}});
  w.ev_b.noticed(0, 0);
  CHECK(w.ev_b.heard == std::vector<std::uint64_t>{77, 78});
  CHECK(w.b.at(0, side::ours).wanted() == tutti::os::interest::read);
  CHECK(take(w.b, 36, 36) == out);
}

TEST_CASE("the end is heard although a piece is before it that nobody has read, and the piece is not lost") {
  both w;
  const auto out = against(w);
  w.a.close();
  CHECK_FALSE(w.b.next_notice());
  CHECK(w.b.notices() == tcp_stream::ending::closed);
  w.b.fail({errc::peer_lost, 0, 0, 0});
  CHECK(take(w.b, 36, 36) == out);
}

TEST_CASE("whoever reads no more still hears notices, behind what is left of the stream") {
  both w;
  (void)against(w);
  w.a.tell({control_message::kind::abort, {errc::timed_out, 0, 2, 5}});
  w.b.drop();
  const auto n = w.b.next_notice();
  REQUIRE(n);
  CHECK(n->why.code == errc::timed_out);
}

TEST_CASE("answers that nobody reads wait with the stream, and what went against it is bounded") {
  both w;
  for (int i = 0; i < 10; ++i) (void)exchange(w, 36);
  const auto question = drive::pattern(16, 1), answer = drive::pattern(way_chooser::most_against, 2);
  std::size_t answered = 0, most = 0;
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(w.a.write(question, {}) == 16);
    CHECK(take(w.b, 16, 16) == question);
    answered += w.b.write(std::span{answer}.subspan(answered % answer.size()), {});
    most = std::max(most, waiting_at(w.a.at(0, side::ours)));
  }
  CHECK(most > 0);
  CHECK(most <= way_chooser::most_unread * (way_chooser::most_against + tutti::detail::piece::encoded_bytes));
  CHECK(answered < 1000 * answer.size() / 2);
  CHECK_FALSE(w.b.at(0, side::theirs).keeps_some());
  std::vector<std::byte> got;
  for (int i = 0; i < 1000 && (got.size() < answered || answered % answer.size() != 0); ++i) {
    const auto more = take(w.a, answer.size(), answer.size());
    got.insert(got.end(), more.begin(), more.end());
    if (answered % answer.size() != 0) answered += w.b.write(std::span{answer}.subspan(answered % answer.size()), {});
  }
  REQUIRE(got.size() == answered);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != answer[i % answer.size()]) REQUIRE(i == got.size());
}

TEST_CASE("a piece that turns back and finds no room is watched, and sent when there is some") {
  both w{4096};
  const auto one = drive::pattern(36, 1), big = drive::pattern(way_chooser::most_against + 1, 2);
  REQUIRE(w.a.write(one, {}) == 36);
  CHECK(take(w.b, 36, 36) == one);
  for (int i = 0; i < 4; ++i) {  // the next of them would go against
    REQUIRE(w.b.write(one, {}) == 36);
    CHECK(take(w.a, 36, 36) == one);
  }
  for (std::uint64_t i = 0; !w.b.at(0, side::theirs).keeps_some(); ++i)
    w.b.tell({control_message::kind::waiting, {errc::ok, 0, 1, i}});
  const int watched = w.ev_b.watched_theirs;
  std::size_t sent = w.b.write(big, {});
  CHECK(w.ev_b.watched_theirs == watched + 1);
  w.ev_a.noticed(1, 0);
  w.b.room(0, side::theirs);
  w.ev_a.noticed(1, 0);
  std::vector<std::byte> got;
  for (int i = 0; i < 10 && got.size() < big.size(); ++i) {
    sent += w.b.write(std::span{big}.subspan(sent), {});
    const auto more = take(w.a, big.size() - got.size(), big.size());
    got.insert(got.end(), more.begin(), more.end());
  }
  CHECK(got == big);
}

}  // namespace
