#include <doctest/doctest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "transport/pipes_over_tcp.hpp"

namespace {

using namespace pipe_pair;

constexpr int warm = 40;  // a new connection acknowledges the first messages when they come

struct acknowledging : over_tcp {
  static void look(tcp_stream& p) {
    std::byte none{};
    p.try_now();
    CHECK(p.read(std::span{&none, 1}) == 0);
  }
  [[nodiscard]] bool all_acknowledged() const {
    int bytes = 0;
    REQUIRE(::ioctl(a.at(0, side::ours).socket.native(), SIOCOUTQ, &bytes) == 0);
    return bytes == 0;
  }
  /// That a's and b's kernels have sent, with data or without.
  [[nodiscard]] std::uint32_t segments() const {
    std::uint32_t sum = 0;
    for (const tcp_stream* p : {&a, &b})
      for (const side s : {side::ours, side::theirs}) {
        std::array<std::uint32_t, 64> info{};  // a tcp_info, to which glibc's gives no tcpi_segs_out
        socklen_t bytes = sizeof info;
        REQUIRE(::getsockopt(p->at(0, s).socket.native(), IPPROTO_TCP, TCP_INFO, info.data(), &bytes) == 0);
        REQUIRE(bytes > 136);
        sum += info[34];
      }
    return sum;
  }
};

/// Of 100 messages from a to b, how many are acknowledged in the call that reads them, and how many with the next look;
/// `between()` comes between the two.
struct counted {
  int in_their_call = 0, with_the_next_look = 0;
  template <class Between>
  counted(acknowledging& w, std::size_t bytes, Between between) {
    for (int i = 0; i < warm + 100; ++i) {
      w.pass(w.a, w.b, bytes);
      const bool at_once = w.all_acknowledged();
      between();
      const bool before = w.all_acknowledged();
      w.look(w.b);
      if (i < warm) continue;
      in_their_call += at_once;
      with_the_next_look += !before && w.all_acknowledged();
    }
  }
};

TEST_CASE("a short message that nothing answers is acknowledged with the next look, not in the call that reads it") {
  for (const std::size_t bytes : {1UL, 400UL, 16000UL}) {
    acknowledging w;
    const counted n{w, bytes, [] {}};
    CHECK(n.with_the_next_look > 50);
    CHECK(n.in_their_call < 50);
  }
}

TEST_CASE("what this rank writes, by another connection, and long messages leave acknowledgements to the kernel") {
  acknowledging answers, is_long;
  const counted with_answers{answers, 1, [&] { answers.pass(answers.b, answers.a, 100'000); }};
  CHECK(with_answers.with_the_next_look < 50);
  const counted long_ones{is_long, 20'000, [] {}};
  CHECK(long_ones.with_the_next_look < 50);
}

TEST_CASE("messages that answer one another are segments without acknowledgements of their own") {
  for (const int looks : {0, 1}) {  // in vain, before each answer
    acknowledging w;
    std::uint32_t before = 0;
    for (int i = 0; i < warm + 100; ++i) {
      if (i == warm) before = w.segments();
      for (const auto& [from, to] : {std::pair{&w.a, &w.b}, std::pair{&w.b, &w.a}}) {
        w.pass(*from, *to, 1);
        for (int look = 0; look < looks; ++look) w.look(*to);
      }
    }
    CHECK(w.segments() - before < 250);
  }
}

}  // namespace
