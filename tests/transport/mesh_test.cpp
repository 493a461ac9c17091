#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <tutti/transport/mesh.hpp>
#include <utility>
#include <vector>

#include "transport/drive.hpp"
#include "transport/memory_pipe.hpp"

namespace {

using drive::flight;
using tutti::errc;
using tutti::status;

constexpr std::size_t eager = tutti::detail::channel_base::eager_limit;

class rank_of_mesh : public tutti::mesh<drive::memory_pipe> {
 public:
  using mesh::mesh;
  using mesh::still_needs;
  void attach(int peer, drive::wire& out, drive::wire& in) { connect(peer, out, in, manners); }

  bool poll() noexcept {
    return poll_channels([this](const status& s) { abort(s); });
  }
  void abort(status why) noexcept {
    if (!fail_all(why)) return;
    for (int p = 0; p < size(); ++p)
      if (channel(p)) channel(p)->say(tutti::frame::abort_with(why));
  }
  [[nodiscard]] int waiting_for(const tutti::routine::promise_type* work) const noexcept {
    return channel_waits_for(work);
  }

  drive::pipe_manners manners;
};

class world {
 public:
  explicit world(int n) : wires_(static_cast<std::size_t>(n * n)) {
    for (int r = 0; r < n; ++r) ranks_.push_back(std::make_unique<rank_of_mesh>(r, n));
    for (int r = 0; r < n; ++r)
      for (int p = 0; p < n; ++p)
        if (r != p) at(r).attach(p, wire(r, p), wire(p, r));
  }
  rank_of_mesh& at(int r) { return *ranks_[static_cast<std::size_t>(r)]; }
  drive::wire& wire(int from, int to) {
    return wires_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }
  void poll(int times = 1) {
    for (int i = 0; i < times; ++i)
      for (auto& r : ranks_) r->poll();
  }
  std::unique_ptr<flight> start(int rank, tutti::routine&& work) {
    owner.on_failure = [this, rank](status why) { at(rank).abort(why); };
    return std::make_unique<flight>(owner, std::move(work));
  }

  drive::owner owner;

 private:
  std::deque<drive::wire> wires_;
  std::vector<std::unique_ptr<rank_of_mesh>> ranks_;
};

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

tutti::routine send_of(rank_of_mesh& m, int to, std::uint64_t tag, std::span<const std::byte> out, std::uint16_t call) {
  co_await m.send(to, tag, out, call);
}
tutti::routine recv_of(rank_of_mesh& m, int from, std::uint64_t tag, std::span<std::byte> in, std::uint16_t call) {
  co_await m.recv(from, tag, in, call);
}

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
          CHECK(tutti::odd_message::in(found).sent == (large ? 2 : 1));
          CHECK(tutti::odd_message::in(found).expected == (large ? 1 : 2));
        }
}

TEST_CASE("a cause that names nobody is passed on as it is, and its messenger is not blamed") {
  for (const status why : {status{errc::timed_out, 0, -1, 41}, status{errc::out_of_resources}, status{errc::aborted}}) {
    world w{3};
    w.at(0).abort(why);
    w.poll(2);
    for (const int r : {1, 2}) CHECK(w.at(r).failure() == why);
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
    const auto odd = tutti::odd_message::in(found);
    CHECK(odd.sent == 1);
    CHECK(odd.expected == 2);
    CHECK(odd.number_near(1400) == 1500);
    CHECK(odd.context == tutti::odd_message::mark_of(7));
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

TEST_CASE("mesh: who is asked whether it called the same says so where it did not, and nothing else") {
  using tutti::tag;
  constexpr std::uint16_t sum = 0x2107, most = 0x2127;
  constexpr std::uint64_t here = tag::make(0, 41, 0);
  const auto ask = [&](std::uint16_t brief, std::uint64_t all, std::uint64_t about) {
    world w{3};
    w.at(1).note_call({here, 5, sum});
    w.at(2).note_call({about, all, brief});
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
  CHECK(other.other == tutti::odd_message::finder_of(1));
  const auto told = tutti::odd_message::in(other);
  CHECK(told.calls_differ());
  CHECK((told.sent == most && told.expected == sum));
  CHECK(told.number_near(40) == 41);
  const status size = ask(sum, 6, here);  // what differs cannot be said in brief
  CHECK(size.code == errc::mismatch);
  CHECK_FALSE(tutti::odd_message::in(size).calls_differ());
  CHECK(tutti::odd_message::in(size).sent != 0);
}
