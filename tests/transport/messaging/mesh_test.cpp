#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tutti/transport/messaging/mesh.hpp>
#include <vector>

#include "transport/drive.hpp"
#include "transport/mesh_world.hpp"

namespace {

using mesh_world::eager;
using mesh_world::flight;
using mesh_world::rank_of_mesh;
using mesh_world::status;
using mesh_world::world;
using tutti::errc;

// Sends from memory of its own, and waits for something else.
tutti::routine send_and_await(rank_of_mesh& m, int to, std::size_t bytes, int from, std::span<std::byte> in,
                              drive::switched& c) {
  const std::vector<std::byte> out = drive::pattern(bytes, 5);
  m.watch(c);
  co_await c;
  auto sending = m.send(to, 7, out);
  co_await m.recv(from, 8, in);
  co_await sending;
}

tutti::routine receive_and_await(rank_of_mesh& m, int from, std::size_t bytes, drive::switched& c) {
  std::vector<std::byte> in(bytes);
  auto receiving = m.recv(from, 7, in);
  m.watch(c);
  co_await c;
  co_await receiving;
}

}  // namespace

TEST_CASE("a mesh carries messages of all sizes between all ranks, whatever its pipes are like") {
  for (const std::size_t grain :
       {std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{17}, std::size_t{4096}}) {
    constexpr int n = 3;
    world w{n};
    std::vector<std::size_t> sizes{0, 1, 15, 16, 17, 1000};
    if (grain > 100) sizes.insert(sizes.end(), {eager - 1, eager, eager + 1, 300000});
    for (int r = 0; r < n; ++r) {
      w.at(r).manners.grain = grain;
      w.at(r).manners.stutter = grain % 2 == 1;
    }
    std::vector<std::vector<std::byte>> out, in;
    std::vector<std::unique_ptr<flight>> flights;
    for (int from = 0; from < n; ++from)
      for (int to = 0; to < n; ++to)
        for (const std::size_t size : sizes) {
          if (from == to) continue;
          out.push_back(drive::pattern(size, static_cast<std::uint64_t>(from * n + to)));
          in.emplace_back(size);
          flights.push_back(w.start(from, drive::send(w.at(from), to, size, out.back())));
        }
    for (std::size_t i = out.size(); i-- > 0;) {  // received in the opposite order
      const int pair = static_cast<int>(i / sizes.size());
      const int from = pair / (n - 1), to = pair % (n - 1) + (pair % (n - 1) >= from ? 1 : 0);
      flights.push_back(w.start(to, drive::recv(w.at(to), from, sizes[i % sizes.size()], in[i])));
    }
    const auto all_done = [&] {
      return std::all_of(flights.begin(), flights.end(), [](auto& f) { return f->done(); });
    };
    for (int i = 0; i < 100000 && !all_done(); ++i) w.poll();
    for (const auto& f : flights) CHECK(f->code() == errc::ok);
    CHECK(in == out);
  }
}

TEST_CASE("a routine resumes only inside of poll") {
  world w{2};
  std::vector<std::byte> in(4);
  const auto out = drive::bytes_of("ping");
  const auto r = w.start(1, drive::recv(w.at(1), 0, 7, in));
  const auto s = w.start(0, drive::send(w.at(0), 1, 7, out));
  CHECK(s->done());  // it fitted, so it never suspended
  std::vector<std::byte> other(1);
  const auto another = w.start(1, drive::recv(w.at(1), 0, 8, other));  // looks at the pipe, where the message is
  CHECK_FALSE(r->done());
  CHECK(w.at(1).poll());
  CHECK(r->code() == errc::ok);
  CHECK(in == out);
  w.at(1).abort({errc::aborted});
  w.poll();
  CHECK(another->code() == errc::aborted);
}

TEST_CASE("the failure of one pipe fails everything and names the peer") {
  world w{3};
  std::vector<std::byte> a(10), b(10);
  const auto r1 = w.start(0, drive::recv(w.at(0), 1, 7, a)), r2 = w.start(0, drive::recv(w.at(0), 2, 7, b));
  drive::switched c;
  const auto r3 = w.start(0, drive::await_condition(w.at(0), c));
  w.poll();
  w.at(0).manners.broken = {errc::peer_lost};
  w.at(0).poll();
  CHECK(w.at(0).failure() == status{errc::peer_lost, 0, 1, 0});
  for (const auto* f : {&r1, &r2, &r3}) CHECK((*f)->result() == status{errc::peer_lost, 0, 1, 0});
  w.at(0).abort({errc::timed_out});
  CHECK(w.at(0).failure().code == errc::peer_lost);
  const auto late = w.start(0, drive::send(w.at(0), 2, 7, a));
  w.at(0).poll();
  CHECK(late->code() == errc::peer_lost);
}

TEST_CASE("a rank that aborts tells the others why") {
  world w{3};
  std::vector<std::byte> in(10);
  const auto r = w.start(2, drive::recv(w.at(2), 1, 7, in));
  w.at(0).abort({errc::timed_out, 0, 1, 0});
  w.poll(2);
  CHECK(r->result() == status{errc::timed_out, 0, 1, 0});
  CHECK(w.at(1).failure() == status{errc::timed_out, 0, 1, 0});
}

TEST_CASE("a failure met while a transfer begins fails everything in the next poll") {
  world w{3};
  std::vector<std::byte> ten(10), eleven(11), other(1);
  const auto waiting = w.start(1, drive::recv(w.at(1), 2, 7, other));
  const auto s = w.start(0, drive::send(w.at(0), 1, 7, ten));
  w.poll(2);
  const auto r = w.start(1, drive::recv(w.at(1), 0, 7, eleven));
  w.poll(2);
  const status why{errc::mismatch, 1 + 1, 0, 10 << 26 | 11};
  CHECK(r->result() == why);
  CHECK(waiting->result() == why);
  CHECK(w.at(1).failure() == why);
}

TEST_CASE("nothing is sent from the memory of a routine that is gone") {
  // Rank 0 has sent part of a message out of its frame when its receive turns out not to match; telling the others goes
  // over the same pipe.
  for (const std::size_t size : {std::size_t{1000}, eager + 1000}) {
    world w{3};
    w.at(0).manners.grain = 100;
    w.at(0).manners.stutter = true;
    std::vector<std::byte> in(10), eleven(11), at_1(size);
    drive::switched c{1};
    const auto r = w.start(1, drive::recv(w.at(1), 0, 7, at_1));
    const auto wrong = w.start(2, drive::send(w.at(2), 0, 8, eleven));
    const auto f = w.start(0, send_and_await(w.at(0), 1, size, 2, in, c));
    for (int i = 0; i < 4; ++i) w.at(0).poll();
    c.on = true;
    for (int i = 0; i < 20; ++i) w.at(0).poll();
    CHECK(f->code() == errc::mismatch);
    CHECK(w.at(0).failure().peer == 2);
    w.at(1).abort({errc::aborted});
    w.poll();
    CHECK(r->done());
    CHECK(wrong->done());
  }
}

TEST_CASE("nothing is received into the memory of a routine that is gone") {
  world w{2};
  w.wire(1, 0).capacity = 100;
  const auto out = drive::pattern(1000, 1);
  drive::switched c{1};
  const auto r = w.start(0, receive_and_await(w.at(0), 1, 1000, c));
  const auto s = w.start(1, drive::send(w.at(1), 0, 7, out));
  w.at(0).poll();
  w.at(0).abort({errc::aborted});
  w.at(0).poll();
  CHECK(r->code() == errc::aborted);
  w.wire(1, 0).capacity = 10000;
  w.at(1).poll();
  for (int i = 0; i < 3; ++i) w.at(0).poll();
  w.at(1).abort({errc::aborted});
  w.poll();
  CHECK(s->done());
}

TEST_CASE("a peer that left is needed only for what it did not leave behind") {
  world w{2};
  const auto out = drive::pattern(1000, 1);
  std::vector<std::byte> in(1000), more(1);
  CHECK_FALSE(w.at(0).still_needs(1));
  const auto r = w.start(0, drive::recv(w.at(0), 1, 7, in));
  CHECK(w.at(0).still_needs(1));
  const auto s = w.start(1, drive::send(w.at(1), 0, 7, out));
  CHECK_FALSE(w.at(0).still_needs(1));  // it takes what is in the pipe first
  w.poll();
  CHECK(r->code() == errc::ok);
  CHECK(s->code() == errc::ok);

  drive::switched c{1};
  const auto waiting = w.start(0, drive::await_condition(w.at(0), c));
  CHECK(w.at(0).still_needs(1));
  c.on = true;
  CHECK_FALSE(w.at(0).still_needs(1));
  w.poll();
  CHECK(waiting->code() == errc::ok);
}

TEST_CASE("a failure found while asking whether a peer is still needed is not forgotten") {
  world w{2};
  std::vector<std::byte> ten(10), eleven(11);
  const auto r = w.start(0, drive::recv(w.at(0), 1, 7, ten));
  const auto s = w.start(1, drive::send(w.at(1), 0, 7, eleven));
  (void)w.at(0).still_needs(1);
  w.at(0).poll();
  w.at(0).poll();
  CHECK(r->result() == status{errc::mismatch, 0 + 1, 1, 11 << 26 | 10});
}

TEST_CASE("a cause that names nobody is passed on as it is, and its messenger is not blamed") {
  for (const status why : {status{errc::timed_out, 0, -1, 41}, status{errc::out_of_resources}, status{errc::aborted}}) {
    world w{3};
    w.at(0).abort(why);
    w.poll(2);
    for (const int r : {1, 2}) CHECK(w.at(r).failure() == why);
  }
}

TEST_CASE("a mesh tells for which peer an operation waits") {
  world w{3};
  std::vector<std::byte> a(1), b(1);
  const auto r1 = w.start(0, drive::recv(w.at(0), 1, 7, a)), r2 = w.start(0, drive::recv(w.at(0), 2, 7, b));
  CHECK(w.at(0).waiting_for(r1->work()) == 1);
  CHECK(w.at(0).waiting_for(r2->work()) == 2);
  CHECK(w.at(1).waiting_for(r1->work()) == -1);
  w.at(0).abort({errc::aborted});
  w.poll();
  CHECK(r2->code() == errc::aborted);
}
