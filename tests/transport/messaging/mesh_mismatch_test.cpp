#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tutti/transport/messaging/mesh.hpp>
#include <tutti/transport/messaging/message_mismatch.hpp>
#include <tutti/transport/messaging/tag.hpp>

#include "transport/mesh_world.hpp"

// Ranks whose calls differ.

namespace {

using mesh_world::eager;
using mesh_world::flight;
using mesh_world::rank_of_mesh;
using mesh_world::status;
using mesh_world::world;
using tutti::errc;

tutti::routine send_of(rank_of_mesh& m, int to, std::uint64_t tag, std::span<const std::byte> out, std::uint16_t call) {
  co_await m.send(to, tag, out, call);
}
tutti::routine recv_of(rank_of_mesh& m, int from, std::uint64_t tag, std::span<std::byte> in, std::uint16_t call) {
  co_await m.recv(from, tag, in, call);
}

}  // namespace

TEST_CASE("ranks that call different things in one place are told where their messages meet") {
  for (const std::size_t size : {std::size_t{10}, eager + 1})
    for (const std::uint32_t step : {1U, 2U})
      for (const bool sends_first : {true, false})
        for (const std::uint16_t theirs : {std::uint16_t{2}, std::uint16_t{1}, std::uint16_t{0}}) {
          world w{2};
          std::vector<std::byte> out(size), in(size);
          std::unique_ptr<flight> s, r;
          const auto send = [&] { s = w.start(0, send_of(w.at(0), 1, tutti::tag::make(0, 5, 1), out, 1)); };
          const auto recv = [&] { r = w.start(1, recv_of(w.at(1), 0, tutti::tag::make(0, 5, step), in, theirs)); };
          sends_first ? send() : recv();
          w.poll(2);
          sends_first ? recv() : send();
          w.poll(4);
          const bool large = size > eager;  // then the sender hears of the receiver first
          const status found = w.at(large ? 0 : 1).failure();
          CAPTURE(size);
          CAPTURE(step);
          CAPTURE(theirs);
          CHECK((found.code == errc::mismatch) == (theirs == 2));
          w.at(0).abort({errc::aborted});  // what waits for another step
          w.poll(2);
          if (theirs != 2) continue;
          CHECK(tutti::message_mismatch::in(found).sent == (large ? 2 : 1));
          CHECK(tutti::message_mismatch::in(found).expected == (large ? 1 : 2));
        }
}

TEST_CASE("whoever is told of calls that differ learns whose, and what is odd about them") {
  world w{3};
  std::vector<std::byte> out(10), in(10);
  const std::uint64_t tag = tutti::tag::make(7, 1500, 1);
  const auto s = w.start(0, send_of(w.at(0), 1, tag, out, 1)), r = w.start(1, recv_of(w.at(1), 0, tag, in, 2));
  w.poll(4);
  for (const int rank : {0, 1, 2}) {
    const status found = w.at(rank).failure();
    CHECK(found.peer == 0);
    CHECK(found.other == 1 + 1);
    const auto odd = tutti::message_mismatch::in(found);
    CHECK(odd.sent == 1);
    CHECK(odd.expected == 2);
    CHECK(odd.number_near(1400) == 1500);
    CHECK(odd.context == tutti::message_mismatch::mark_of(7));
  }
}

TEST_CASE("ranks that prepare for different calls find that out later") {
  for (const std::uint32_t step : {tutti::tag::preparing, tutti::tag::preparing + 1}) {
    world w{2};
    std::vector<std::byte> out(10), in(10);
    const auto s = w.start(0, send_of(w.at(0), 1, tutti::tag::make(0, 1, step), out, 1));
    const auto r = w.start(1, recv_of(w.at(1), 0, tutti::tag::make(0, 1, tutti::tag::preparing), in, 2));
    w.poll(4);
    CHECK(r->done() == (step == tutti::tag::preparing));
    CHECK(w.at(1).failure().ok());
    w.at(1).abort({errc::aborted});
    w.poll(2);
  }
}

TEST_CASE("mesh: what a rank waits for in no step is compared with its call, whichever was first") {
  using tutti::tag;
  constexpr std::uint16_t mine = 0x2107, other = 0x2106;
  for (const bool message : {true, false})  // or the ready of one that is large
    for (const bool call_first : {true, false})
      for (const std::uint16_t theirs : {mine, other, std::uint16_t{0}})
        for (const std::uint64_t about : {tag::make(4, 9, 3), tag::make(4, 8, 3), tag::make(4, 9, tag::preparing)}) {
          world w{2};
          std::vector<std::byte> bytes(message ? 10 : eager + 1), more(1);
          const auto call = [&] { w.at(1).note_call({tag::make(4, 9, 0), 5, mine}); };
          if (call_first) call();
          const auto meets = w.start(
              0, message ? send_of(w.at(0), 1, about, bytes, theirs) : recv_of(w.at(0), 1, about, bytes, theirs));
          w.poll(2);
          if (!call_first) call();
          const std::uint32_t step = tag::prepares(about) ? tag::preparing + 1 : 5;
          const auto next = w.start(1, send_of(w.at(1), 0, tag::make(4, 9, step), more, mine));
          w.poll(2);
          const bool odd = theirs == other && about == tag::make(4, 9, 3);
          CAPTURE(about);
          CAPTURE(theirs);
          CHECK(next->code() == (odd ? errc::mismatch : errc::ok));
          CHECK(w.at(0).failure().code == (odd ? errc::mismatch : errc::ok));
          if (odd) CHECK(w.at(0).failure().peer == 0);
          w.at(0).abort({errc::aborted});
          w.poll(2);
        }
}

TEST_CASE("mesh: what has come for a call that has ended here is nobody's") {
  using tutti::tag;
  constexpr std::uint16_t short_id = 0x2107;
  constexpr std::uint64_t ended = tag::make(4, 9, 0);
  for (const std::uint64_t about : {ended + 3, ended + tag::preparing, tag::make(4, 10, 3), tag::make(5, 9, 3)})
    for (const std::uint16_t theirs : {short_id, std::uint16_t{0}})
      for (const bool in_flight : {false, true}) {
        world w{2};
        std::vector<std::byte> bytes(10), more(1);
        const auto begin = [&](std::uint64_t call) {
          w.at(1).note_call({call, 5, short_id},
                            [&](std::uint64_t t) { return in_flight && tag::of_one_operation(t, ended); });
        };
        begin(ended);
        const auto meets = w.start(0, send_of(w.at(0), 1, about, bytes, theirs));
        w.poll(2);
        begin(tag::make(4, 20, 0));
        w.poll(2);
        const bool odd = about == ended + 3 && theirs == short_id && !in_flight;
        CHECK(w.at(1).failure().code == (odd ? errc::mismatch : errc::ok));
        CHECK(w.at(0).failure().code == (odd ? errc::mismatch : errc::ok));
        if (odd) CHECK(w.at(1).failure().peer == 0);
        w.at(0).abort({errc::aborted});
        w.poll(2);
      }
}

TEST_CASE("mesh: who asks tells of the long message that its receiver does not want so long") {
  using tutti::tag;
  constexpr std::uint16_t short_id = 0x2107;
  constexpr std::uint64_t here = tag::make(0, 41, 0);
  for (const bool receives : {true, false})
    for (const std::size_t wanted : {std::size_t{10}, eager + 1}) {
      world w{2};
      std::vector<std::byte> out(eager + 1), in(wanted);
      for (int r : {0, 1}) w.at(r).note_call({here, 5, short_id});
      const auto s = w.start(0, send_of(w.at(0), 1, here + 1, out, short_id));
      std::unique_ptr<flight> r;
      if (receives) r = w.start(1, recv_of(w.at(1), 0, here + 1, in, short_id));
      w.poll(2);
      w.at(0).ask(s->work(), here);
      w.poll(4);
      const bool odd = receives && wanted == 10;
      CHECK(w.at(0).failure().code == (odd ? errc::mismatch : errc::ok));
      CHECK(s->done() == receives);
      if (odd) CHECK(tutti::message_mismatch::in(w.at(0).failure()).room == 10);
      if (!receives) {  // what was told is not taken for a message
        in.resize(eager + 1);
        r = w.start(1, recv_of(w.at(1), 0, here + 1, in, short_id));
        w.poll(4);
        CHECK(r->code() == errc::ok);
      }
      w.at(0).abort({errc::aborted});
      w.poll(2);
    }
}

TEST_CASE("mesh: who is asked whether it called the same says so where it did not, and nothing else") {
  using tutti::tag;
  constexpr std::uint16_t sum = 0x2107, most = 0x2127;
  constexpr std::uint64_t here = tag::make(0, 41, 0);
  const auto ask = [&](std::uint16_t short_id, std::uint64_t all, std::uint64_t about) {
    world w{3};
    w.at(1).note_call({here, 5, sum});
    w.at(2).note_call({about, all, short_id});
    std::vector<std::byte> a(1), b(1);
    const auto from_1 = w.start(2, drive::recv(w.at(2), 1, about + 1, a));
    const auto from_0 = w.start(2, drive::recv(w.at(2), 0, about + 2, b));
    w.at(2).ask(from_1->work(), about + 9);
    w.at(2).ask(from_1->work(), tag::make(0, 99, 0));  // what it has not called itself, it does not ask
    w.at(2).ask(from_0->work(), about);                // who has called nothing of the kind says nothing
    w.at(2).ask(nullptr, about);
    w.poll(5);
    const status found = w.at(0).failure();
    w.at(2).abort({errc::aborted});
    w.poll(2);
    return found;
  };
  CHECK(ask(sum, 5, here).ok());
  CHECK(ask(most, 5, tag::make(0, 42, 0)).ok());  // not called there yet
  CHECK(ask(most, 5, tag::make(1, 41, 0)).ok());
  const status other = ask(most, 6, here);
  CHECK(other.code == errc::mismatch);
  CHECK(other.peer == 2);
  CHECK(other.other == tutti::message_mismatch::finder_of(1));
  const auto told = tutti::message_mismatch::in(other);
  CHECK(told.calls_differ());
  CHECK((told.sent == most && told.expected == sum));
  CHECK(told.number_near(40) == 41);
  const status size = ask(sum, 6, here);  // what differs cannot be said in brief
  CHECK(size.code == errc::mismatch);
  CHECK_FALSE(tutti::message_mismatch::in(size).calls_differ());
  CHECK(tutti::message_mismatch::in(size).sent != 0);
  CHECK(tutti::message_mismatch::in(size).of == tutti::message_mismatch::unit::elements);
  CHECK(ask(sum, 6, here + 4).detail == size.detail);  // by another algorithm as well: it may be so because of the rest
  const auto way = tutti::message_mismatch::in(ask(sum, 5, here + 4));
  CHECK(way.of == tutti::message_mismatch::unit::algorithms);
  CHECK((way.bytes == 4 && way.room == 0));
}
