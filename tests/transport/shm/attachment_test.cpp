#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <tutti/transport/shm/attachment.hpp>
#include <vector>

#include "support/failure_of.hpp"
#include "transport/shm_world.hpp"

namespace {

using drive::shm_world;
using tutti::errc;
using tutti::shm_attachment;
using tutti::shm_layout;
using namespace std::chrono_literals;
using tutti_test::forked_child;

/// This process is rank 0 of a machine whose other ranks are children.
struct machine {
  explicit machine(int n)
      : layout(shm_layout::of(n, 1 << 20)), segment(tutti::os::shm_segment::create(layout.bytes())) {
    segment.reserve(0, layout.area_bytes);
    ranks.push_back(drive::myself(0));
  }
  void add(const forked_child& child) {
    ranks.push_back(drive::myself(static_cast<int>(ranks.size())));
    ranks.back().pid = child.pid();
    ranks.back().start_time = tutti::os::process_start_time(child.pid()).value_or(0);
  }
  shm_attachment place() {
    return {tutti::os::shm_segment::adopt(tutti::os::fd{::dup(segment.native())}, layout.bytes()), layout, ranks, 0};
  }
  shm_layout layout;
  tutti::os::shm_segment segment;
  tutti::roster ranks;
};

tutti_test::failure failure_of(shm_attachment& place, tutti::duration limit) {
  return tutti_test::failure_of([&] { place.await_everyone(tutti::after(limit)); });
}

}  // namespace

TEST_CASE("a place knows its memory") {
  machine m{1};
  shm_attachment place = m.place();
  CHECK(place.local_size() == 1);
  CHECK(place.heap(0) - reinterpret_cast<std::byte*>(&place.area().block(0)) > 0);
  CHECK(place.layout() == m.layout);
  place.heap(0)[m.layout.heap_bytes - 1] = std::byte{7};  // all of it is mapped
  place.register_rank();
  place.await_everyone(tutti::after(1h));
  CHECK(place.area().block(0).pid == ::getpid());
  CHECK(tutti::os::probe(place.area().block(0).beacon, ::getpid(), m.ranks[0].start_time) ==
        tutti::os::liveness::alive);
}

TEST_CASE("a place says goodbye when it ends, also after it was moved") {
  machine m{1};
  const auto memory = m.segment.map();
  const tutti::shm_control_block area{memory.data(), 1};
  {
    shm_attachment first = m.place();
    first.register_rank();
    shm_attachment second = std::move(first);
    CHECK(tutti::os::probe(area.block(0).beacon, ::getpid(), m.ranks[0].start_time) == tutti::os::liveness::alive);
  }
  CHECK(tutti::os::probe(area.block(0).beacon, ::getpid(), m.ranks[0].start_time) == tutti::os::liveness::left);
}

TEST_CASE("whoever does not sign in is named at the deadline, and everybody hears of it") {
  forked_child a{[] { return ::pause(); }}, b{[] { return ::pause(); }};
  machine m{3};
  m.add(a);
  m.add(b);
  shm_attachment place = m.place();
  place.register_rank();
  const auto e = failure_of(place, 30ms);
  CHECK(e.kind == errc::rendezvous);
  CHECK(e.peer == 1);
  CHECK(e.text.find(tutti::describe(m.ranks[1]) + " and " + tutti::describe(m.ranks[2])) == 0);
  CHECK(place.area().failure().code == errc::rendezvous);
}

TEST_CASE("a rank that dies before it signs in ends the wait") {
  auto a = std::make_unique<forked_child>([] { return ::pause(); });
  machine m{2};
  m.add(*a);
  shm_attachment place = m.place();
  place.register_rank();
  a.reset();
  const auto e = failure_of(place, 1h);
  CHECK(e.kind == errc::peer_lost);
  CHECK(e.peer == 1);
  CHECK(place.area().failure().code == errc::peer_lost);
}

TEST_CASE("a rank that gives up ends the wait of the others") {
  forked_child absent{[] { return ::pause(); }}, quitter{[] { return ::pause(); }};
  machine m{3};
  m.add(absent);
  m.add(quitter);
  shm_attachment place = m.place();
  place.register_rank();
  place.area().block(2).pid = quitter.pid();
  place.area().block(2).beacon.state = tutti::os::beacon_word::phase::left;
  const auto e = failure_of(place, 1h);
  CHECK(e.kind == errc::peer_left);
  CHECK(e.peer == 2);
}

TEST_CASE("the first cause is everybody's, and says whose it is") {
  forked_child absent{[] { return ::pause(); }}, lost{[] { return ::pause(); }};
  machine m{3};
  m.add(absent);
  m.add(lost);
  shm_attachment place = m.place();
  place.register_rank();
  place.area().fail({errc::peer_lost, 0, 2, 0});
  const auto e = failure_of(place, 1h);
  CHECK(e.kind == errc::peer_lost);
  CHECK(e.peer == 2);
  CHECK(e.mentions("peer lost, " + tutti::describe(m.ranks[2])));
}

TEST_CASE("once everyone has signed in, who leaves is no concern of the set-up") {
  forked_child other{[] { return ::pause(); }};
  machine m{2};
  m.add(other);
  shm_attachment place = m.place();
  place.register_rank();
  place.area().block(1).pid = other.pid();
  place.area().block(1).beacon.state = tutti::os::beacon_word::phase::left;
  place.area().fail({errc::aborted});
  place.expect_life();
  place.await_everyone(tutti::after(1h));
}

TEST_CASE("many names are cut short") {
  tutti::roster ranks;
  std::vector<int> which;
  for (int r = 0; r < 6; ++r) {
    ranks.push_back({});
    ranks.back().rank = r;
    ranks.back().host = "h";
    which.push_back(r);
  }
  const auto text = tutti::detail::describe_some(ranks, which);
  CHECK(text ==
        "rank 0 (host h, pid 0), rank 1 (host h, pid 0), rank 2 (host h, pid 0), rank 3 (host h, pid 0) and 2 more");
  CHECK(tutti::detail::describe_some(ranks, {5}) == "rank 5 (host h, pid 0)");
}
