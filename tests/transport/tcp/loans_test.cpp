#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/transport/host.hpp>
#include <tutti/transport/tcp/control_message.hpp>
#include <tutti/transport/tcp/zero_copy_send.hpp>

#include "transport/tcp_by_hand.hpp"

namespace {

using namespace tcp_by_hand;
using tutti::detail::control_message;
using tutti::detail::loans;
using tutti::detail::piece;

constexpr std::size_t bytes = 400'000, lent = bytes - loans::kept_back;
constexpr std::uint64_t tag = 7;

/// Rank 0 sends rank 1, by hand, a message that is lent; all of it that goes before rank 1 has said so is here.
struct lender : against {
  std::vector<std::byte> out = drive::pattern(bytes, 3), got;
  std::unique_ptr<drive::flight> sending;
  lender() : against(plan::on_one_machine(2)) {
    meet();
    sending = d.send(1, tag, out);
    CHECK(strangers::say(stream, piece_of({frame::kind::ready, tag, 0})));
    CHECK(until([&] {
      const auto more = strangers::hear(notices, head_bytes + lent - got.size(), 0ms);
      got.insert(got.end(), more.begin(), more.end());
      return got.size() == head_bytes + lent;
    }));
    CHECK(piece::decode(std::span{got}.first<piece::encoded_bytes>())->lent);
    got.erase(got.begin(), got.begin() + head_bytes);
    (void)until_done(*sending, [i = 0]() mutable { return ++i > 20; });
    CHECK_FALSE(sending->done());
    CHECK(strangers::hear(notices, 1, 20ms).empty());
  }
};

TEST_CASE("tcp: long messages of all kinds between ranks of a machine, in threads") {
  for (const int ranks : {2, 3}) {
    auto p = plan::on_one_machine(ranks);
    p.options.connections = ranks - 1;  // of which several lend nothing
    const auto said = in_threads(p, [](driver& d) {
      for (int round = 0; round < 3; ++round)
        if (std::string s = drive::all_to_all(d, {bytes, 2 << 20, 100, loans::least, 5 << 20}); !s.empty()) return s;
      return std::string{};
    });
    for (const std::string& s : said) CHECK(s == "");
  }
}

TEST_CASE("tcp: long messages are preferred where all of them are lent") {
  const auto prefers = [](plan p) {
    const tutti::host_transport whole{p.peers, 0, {}, std::move(p.listeners[0]), p.jobs[0], p.options};
    tutti::tcp_listener again{"127.0.0.1"};
    const tutti::tcp_transport t{std::move(again), p.peers, 0, p.jobs[0], p.options};
    CHECK(whole.prefers_long_messages() == t.prefers_long_messages());
    return t.prefers_long_messages();
  };
  CHECK(prefers(plan::on_one_machine(3)));
  CHECK_FALSE(prefers(plan{3}));
  auto p = plan::on_one_machine(3);
  p.options.connections = 2;
  CHECK_FALSE(prefers(std::move(p)));
}

TEST_CASE("tcp: the end of what is lent is sent when the peer has read the rest, and then the memory is free") {
  lender w;
  CHECK(strangers::say(w.notices, control_message{control_message::kind::has_read, {}}.encode()));
  CHECK(w.until([&] { return w.sending->done(); }));
  CHECK(w.sending->result().ok());
  const auto end = strangers::hear(w.notices, piece::encoded_bytes + loans::kept_back);
  REQUIRE(end.size() == piece::encoded_bytes + loans::kept_back);
  w.got.insert(w.got.end(), end.begin() + piece::encoded_bytes, end.end());
  CHECK(w.got == w.out);
}

TEST_CASE("tcp: what its sender gave up while it was lent never arrives whole") {
  lender w;
  {
    const auto guard = w.d.lock();
    w.rank0->abort({errc::timed_out, 0, 1, 41});
  }
  CHECK(w.until([&] { return w.sending->done(); }));
  CHECK(w.sending->result().code == errc::timed_out);
  {
    const auto guard = w.d.lock();
    w.rank0->leave();
  }
  CHECK(strangers::hear(w.notices, loans::kept_back).size() < loans::kept_back);
}

TEST_CASE("tcp: a peer that goes before it has read what it was lent") {
  lender w;
  errc expected = errc::peer_lost;
  SUBCASE("in silence") {
    strangers::reset(w.notices);
    strangers::reset(w.stream);
  }
  SUBCASE("in order") {
    expected = errc::peer_left;
    CHECK(strangers::say(w.stream, piece_of({frame::kind::bye, 0, 0})));
  }
  CHECK(w.until([&] { return w.sending->done(); }));
  CHECK(w.sending->result().code == expected);
  CHECK(w.sending->result().peer == 1);
}

TEST_CASE("tcp: who has read what it was lent says so") {
  against w{plan::on_one_machine(2)};
  w.meet();
  std::vector<std::byte> in(bytes);
  const auto f = w.d.recv(1, tag, in);
  const auto out = drive::pattern(bytes, 5);
  const auto header = frame{frame::kind::data, tag, bytes}.encode();
  const auto head = piece{.bytes = header.size() + lent, .lent = true}.encode();
  CHECK(strangers::hear(w.notices, head_bytes).size() == head_bytes);  // it is ready
  CHECK(strangers::say(w.stream, head));
  CHECK(strangers::say(w.stream, header));
  CHECK(strangers::say(w.stream, std::span{out}.first(lent - 1)));
  (void)w.until_done(*f, [i = 0]() mutable { return ++i > 20; });
  CHECK(strangers::hear(w.stream, 1, 20ms).empty());
  CHECK(strangers::say(w.stream, std::span{out}.subspan(lent - 1, 1)));
  std::vector<std::byte> answer;
  CHECK(w.until([&] { return !(answer = strangers::hear(w.stream, control_message::encoded_bytes, 0ms)).empty(); }));
  REQUIRE(answer.size() == control_message::encoded_bytes);
  const auto notice = control_message::decode(std::span{answer}.first<control_message::encoded_bytes>());
  REQUIRE(notice);
  CHECK(notice->what == control_message::kind::has_read);
  CHECK_FALSE(f->done());
  CHECK(strangers::say(w.stream, piece_of(std::span{out}.last(loans::kept_back))));
  CHECK(w.until([&] { return f->done(); }));
  CHECK(f->result().ok());
  CHECK(in == out);
}

}  // namespace
