#include <doctest/doctest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <tutti/transport/shm/domain.hpp>

#include "transport/shm_world.hpp"

#include <support/expect.hpp>

namespace {

using drive::shm_world;
using tutti::shm_domain;
using tutti::os::liveness;
using namespace std::chrono_literals;

using tutti_test::expect;

std::map<int, liveness> gone(shm_domain& d) {
  std::map<int, liveness> who;
  d.check([&](int r, liveness l) { who[r] = l; });
  return who;
}

}  // namespace

TEST_CASE("a domain tells who lives, who left and who died") {
  shm_world world{4, [](int rank, shm_world& w) {
                    auto place = w.take_place(rank);
                    auto d = std::make_unique<shm_domain>(std::move(place));
                    w.word(0).fetch_add(1);
                    while (w.word(0) < 4) std::this_thread::sleep_for(1ms);
                    if (rank == 0) {
                      expect(gone(*d).empty(), "somebody is gone too early");
                      w.word(1) = 1;
                    }
                    while (w.word(1) == 0) std::this_thread::sleep_for(1ms);
                    if (rank == 1) d->leave();  // and lives on
                    if (rank == 2) d.reset();
                    if (rank == 3) ::_exit(1);
                    if (rank == 0)
                      expect(shm_world::eventually([&] {
                               return gone(*d) == std::map<int, liveness>{
                                                      {1, liveness::left}, {2, liveness::left}, {3, liveness::dead}};
                             }),
                             "not seen who is gone");
                    w.word(2) += rank == 0;
                    while (w.word(2) == 0) std::this_thread::sleep_for(1ms);
                  }};
  for (const int r : {0, 1, 2}) {
    CHECK(world.ends(r));
    CHECK_MESSAGE(world.of(r).code == shm_world::fine, world.of(r).message);
  }
}

TEST_CASE("a rank that died has ended when the last thread of its process has") {
  if (tutti::detail::thread_sanitizer) return;  // which allows no threads after fork()
  shm_world world{2, [](int rank, shm_world& w) {
                    shm_domain d{w.take_place(rank)};
                    if (rank == 1) {
                      std::thread{[] {
                        for (;;) ::pause();
                      }}.detach();
                      ::syscall(SYS_exit, 0);  // the thread that holds the beacon
                    }
                    const auto dead = [&] { return d.state_of(1) == liveness::dead; };
                    expect(shm_world::eventually(dead), "not seen to be dead");
                    expect(!d.ended(1), "another thread may be at work");
                    ::kill(d.who(1).pid, SIGKILL);
                    expect(shm_world::eventually([&] { return d.ended(1); }), "not seen to have ended");
                  }};
  CHECK(world.ends(0));
  CHECK_MESSAGE(world.of(0).code == shm_world::fine, world.of(0).message);
}

TEST_CASE("the memory of a rank that left stays readable") {
  shm_world world{2, [](int rank, shm_world& w) {
                    auto d = std::make_unique<shm_domain>(w.take_place(rank));
                    if (rank == 1) {
                      std::byte* p = d->heap().allocate(100);
                      *p = std::byte{42};
                      w.word(1) = *d->heap().locate(p, 100) + 1;
                      d.reset();
                      w.word(2) = 1;
                      return;
                    }
                    while (w.word(2) == 0) std::this_thread::sleep_for(1ms);
                    expect(*d->resolve(1, w.word(1) - 1, 100) == std::byte{42}, "lost");
                  }};
  CHECK(world.trouble() == "");
}

TEST_CASE("a world that sleeps on descriptors is woken through them") {
  shm_world world{2,
                  [](int rank, shm_world& w) {
                    shm_domain d{w.take_place(rank)};
                    expect(d.descriptor() >= 0, "no descriptor");
                    tutti::os::poller p;
                    p.add(d.descriptor(), tutti::os::interest::read, 0);
                    d.bell().prepare(tutti::shm_control_block::sleep::on_descriptor);
                    w.word(static_cast<std::size_t>(rank)) = 1;
                    while (w.word(static_cast<std::size_t>(1 - rank)) == 0) std::this_thread::sleep_for(1ms);
                    d.bell().ring(1 - rank);
                    expect(!p.wait(10s).empty(), "not woken");
                    d.bell().finish();
                    w.word(2).fetch_add(1);
                    while (w.word(2) < 2) std::this_thread::sleep_for(1ms);
                  },
                  {.heap_bytes = 1 << 20, .sleep_on = tutti::shm_control_block::sleep::on_descriptor}};
  CHECK(world.trouble() == "");
}

TEST_CASE("a domain of one has no descriptor, no one to miss and one rank per its cores") {
  tutti::shm_export offer{1, {.heap_bytes = 1 << 20}};
  shm_domain d{offer.hand_out({drive::myself(0)}, 0, tutti::after(10s))};
  CHECK(d.descriptor() == -1);
  CHECK(gone(d).empty());
  d.note_issue(1);
  CHECK(d.furthest_behind(1) == -1);
  CHECK(d.resolve(0, 0, 1 << 20) == d.heap().allocate(10));
  CHECK(d.resolve(0, 0, (1 << 20) + 1) == nullptr);
  CHECK(d.ranks_per_core() <= 1);
  d.fail({tutti::errc::aborted});
  CHECK(d.area().failure().code == tutti::errc::aborted);
}
