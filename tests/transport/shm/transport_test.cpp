#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/transport/concept.hpp>
#include <vector>

#include "transport/drive.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/shm_world.hpp"

#include <support/expect.hpp>

namespace {

using drive::rank_driver;
using drive::shm_world;
using tutti::errc;
using tutti::status;
using namespace std::chrono_literals;

using tutti_test::expect;
using tutti_test::shm_transport;

static_assert(tutti::mapped_transport<shm_transport>);

constexpr int peer_lost = static_cast<int>(errc::peer_lost);

/// The first word at an address of somebody's shared memory.
struct raised final : tutti::condition {
  raised(std::byte* where, int owner) : word(reinterpret_cast<std::atomic<std::uint64_t>*>(where)), peer(owner) {}
  bool holds() noexcept override { return word->load(std::memory_order_acquire) != 0; }
  int waiting_for() const noexcept override { return peer; }
  std::atomic<std::uint64_t>* word;
  int peer;
};

std::uint64_t exchange_place(rank_driver<shm_transport>& d, int peer, std::uint64_t mine) {
  std::uint64_t theirs = 0;
  const auto sending = d.send(peer, 99, std::as_bytes(std::span{&mine, 1}));
  const auto receiving = d.recv(peer, 99, std::as_writable_bytes(std::span{&theirs, 1}));
  d.until([&] { return sending->done() && receiving->done(); });
  expect(receiving->result().ok() && sending->result().ok(), "could not exchange places");
  return theirs;
}

}  // namespace

TEST_CASE("all sizes travel between all processes, in any order") {
  for (const int n : {1, 2, 4}) {
    shm_world world{n, [](int rank, shm_world& w) {
                      shm_transport t{w.take_place(rank)};
                      rank_driver<shm_transport> d{t};
                      const std::string wrong = drive::all_to_all(d, drive::sizes_around_the_eager_limit());
                      expect(wrong.empty(), wrong);
                    }};
    CHECK(world.trouble() == "");
  }
}

TEST_CASE("with address space as by default, and with processes that only sleep") {
  shm_world world{3,
                  [](int rank, shm_world& w) {
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t, 0};
                    for (std::uint64_t round = 0; round < 50; ++round)
                      expect(d.run(drive::barrier(t, round)).ok(), "a barrier failed");
                    const std::string wrong = drive::all_to_all(d, drive::sizes_around_the_eager_limit());
                    expect(wrong.empty(), wrong);
                  },
                  {.heap_bytes = tutti::shm_layout::default_heap_bytes(3)}};
  CHECK(world.trouble() == "");
}

TEST_CASE("memory that one rank allocates is loaded and stored by the others") {
  shm_world world{3, [](int rank, shm_world& w) {
                    constexpr std::size_t bytes = 3 << 20;
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t};
                    std::byte* mine = t.allocate(bytes);
                    expect(std::all_of(mine, mine + bytes, [](std::byte b) { return b == std::byte{}; }), "not zeroed");
                    const auto pattern = drive::pattern(bytes, static_cast<std::uint64_t>(rank));
                    std::copy(pattern.begin(), pattern.end(), mine);
                    const auto where = t.locate(mine, bytes);
                    expect(where.has_value() && !t.locate(&where, 1), "located wrongly");
                    expect(d.run(drive::barrier(t, 1)).ok(), "a barrier failed");
                    std::vector<std::byte*> theirs;
                    for (int p = 0; p < t.size(); ++p) {
                      const std::uint64_t place = p == rank ? *where : exchange_place(d, p, *where);
                      theirs.push_back(t.resolve(p, place, bytes));
                      expect(theirs.back() != nullptr, "not resolved");
                      const auto expected = drive::pattern(bytes, static_cast<std::uint64_t>(p));
                      expect(std::equal(expected.begin(), expected.end(), theirs.back()), "wrong bytes");
                    }
                    expect(theirs[static_cast<std::size_t>(rank)] == mine, "resolved its own memory elsewhere");
                    expect(d.run(drive::barrier(t, 2)).ok(), "a barrier failed");
                    for (int p = 0; p < t.size(); ++p)
                      theirs[static_cast<std::size_t>(p)][rank] = static_cast<std::byte>(100 + rank);
                    expect(d.run(drive::barrier(t, 3)).ok(), "a barrier failed");
                    for (int p = 0; p < t.size(); ++p) expect(mine[p] == static_cast<std::byte>(100 + p), "not stored");
                    expect(d.run(drive::barrier(t, 4)).ok(), "a barrier failed");
                    t.deallocate(mine);
                  }};
  CHECK(world.trouble() == "");
}

TEST_CASE("a wild name of memory is resolved to nothing") {
  shm_world world{
      2, [](int rank, shm_world& w) {
        shm_transport t{w.take_place(rank)};
        constexpr std::uint64_t heap = std::uint64_t{64} << 20;
        for (const std::uint64_t wild : {heap, heap + 1, 2 * heap, ~std::uint64_t{0}, std::uint64_t{1} << 63})
          expect(t.resolve(1 - rank, wild) == nullptr, "resolved a wild name");
        expect(t.resolve(1 - rank, heap - 10, 11) == nullptr, "resolved past the end");
        expect(t.resolve(1 - rank, heap - 10, 10) != nullptr, "did not resolve the end");
        expect(t.resolve(1 - rank, 5, ~std::size_t{0}) == nullptr, "resolved a wild length");
        expect(t.resolve(-1, 0) == nullptr && t.resolve(2, 0) == nullptr, "resolved a wild rank");
      }};
  CHECK(world.trouble() == "");
}

TEST_CASE("a store to a peer's memory wakes the peer that waits for it") {
  shm_world world{2, [](int rank, shm_world& w) {
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t, 0};
                    std::byte* mine = t.allocate(4096);
                    std::byte* theirs = t.resolve(1 - rank, exchange_place(d, 1 - rank, *t.locate(mine, 4096)));
                    for (int round = 0; round < 100; ++round) {
                      const auto at = 8 * round;
                      raised mine_is_up{mine + at, 1 - rank};
                      if (rank == round % 2) {
                        reinterpret_cast<std::atomic<std::uint64_t>*>(theirs + at)->store(1, std::memory_order_release);
                        t.ring(1 - rank);
                        expect(d.run(drive::await_condition(t, mine_is_up)).ok(), "no answer");
                      } else {
                        expect(d.run(drive::await_condition(t, mine_is_up)).ok(), "no store");
                        reinterpret_cast<std::atomic<std::uint64_t>*>(theirs + at)->store(1, std::memory_order_release);
                        t.ring(1 - rank);
                      }
                    }
                  }};
  CHECK(world.trouble() == "");
}

TEST_CASE("a rank that is killed is reported by every survivor, whether it sleeps or works") {
  std::mt19937 random{2024};
  std::int64_t slowest = 0;
  for (int trial = 0; trial < 100; ++trial) {
    constexpr int n = 4;
    shm_world world{n, [trial](int rank, shm_world& w) {
                      shm_transport t{w.take_place(rank)};
                      rank_driver<shm_transport> d{t, trial % 3 == 0 ? 0U : 200U};
                      status s{};
                      if (trial % 3 == 0) {  // everybody sleeps and waits for somebody
                        std::byte in{};
                        s = d.run(drive::recv(t, (rank + 1) % n, 7, {&in, 1}));
                      } else {
                        const std::vector<std::byte> out(trial % 3 == 1 ? 1000 : 300000);
                        std::vector<std::byte> in(out.size());
                        for (std::uint64_t round = 0; s.ok(); ++round) {
                          const auto sending = d.send((rank + 1) % n, round, out);
                          s = d.run(drive::recv(t, (rank + 3) % n, round, in));
                          if (status sent = d.wait(*sending); s.ok()) s = sent;
                        }
                      }
                      w.report(rank, s, t.describe(s.peer));
                    }};
    REQUIRE(world.everyone_is_set_up());
    const int victim = static_cast<int>(random() % n);
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 3000});
    const auto killed_at = std::chrono::steady_clock::now().time_since_epoch().count();
    world.signal(victim, SIGKILL);
    for (int r = 0; r < n; ++r) {
      CAPTURE(trial);
      REQUIRE(world.ends(r));  // a hang would be worse than a late report
      if (r == victim) continue;
      CHECK(world.of(r).code == peer_lost);
      CHECK(world.of(r).peer == victim);
      CHECK(std::string{world.of(r).message}.find("rank " + std::to_string(victim) + " (host ") == 0);
      slowest = std::max(slowest, world.of(r).ended_at - killed_at);
    }
  }
  MESSAGE("slowest report of a killed rank: " << slowest / 1000 << " us");
}

TEST_CASE("a rank with much memory is reported as fast, before the kernel has torn it down") {
  shm_world world{2, [](int rank, shm_world& w) {
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t, 0};
                    std::vector<std::byte> large(rank == 1 ? 256U << 20 : 0, std::byte{1});
                    expect(d.run(drive::barrier(t, 1)).ok(), "a barrier failed");
                    if (rank == 0) w.word(0) = 1;  // who is told of it is through
                    std::byte in{};
                    w.report(rank, d.run(drive::recv(t, 1 - rank, 7, {&in, 1})));
                  }};
  REQUIRE(world.eventually([&] { return world.word(0) != 0; }));
  const auto killed_at = std::chrono::steady_clock::now().time_since_epoch().count();
  world.signal(1, SIGKILL);
  REQUIRE(world.ends(0));
  CHECK(world.of(0).code == peer_lost);
  CHECK(world.of(0).peer == 1);
  MESSAGE("reported after " << (world.of(0).ended_at - killed_at) / 1000 << " us");
}

TEST_CASE("a process that ends without a goodbye is lost") {
  shm_world world{2, [](int rank, shm_world& w) {
                    auto t = std::make_unique<shm_transport>(w.take_place(rank));
                    if (rank == 1) ::_exit(0);
                    rank_driver<shm_transport> d{*t};
                    std::byte in{};
                    w.report(rank, d.run(drive::recv(*t, 1, 7, {&in, 1})));
                  }};
  REQUIRE(world.ends(0));
  CHECK(world.of(0).code == peer_lost);
  CHECK(world.of(0).peer == 1);
}

TEST_CASE("a process that is stopped is not lost") {
  shm_world world{2, [](int rank, shm_world& w) {
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t, 0};
                    w.word(static_cast<std::size_t>(rank)) = 1;
                    expect(d.run(drive::barrier(t, 1)).ok(), "the barrier failed");
                    while (w.word(2) == 0) std::this_thread::sleep_for(1ms);
                    expect(d.run(drive::barrier(t, 2)).ok(), "the barrier failed");
                  }};
  REQUIRE(world.everyone_is_set_up());
  world.signal(1, SIGSTOP);
  world.word(2) = 1;
  std::this_thread::sleep_for(100ms);
  CHECK(world.of(0).code == shm_world::no_outcome);
  world.signal(1, SIGCONT);
  CHECK(world.trouble() == "");
}

TEST_CASE("a rank that leaves is missed only by those who still need it") {
  shm_world world{3, [](int rank, shm_world& w) {
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t};
                    std::byte token{};
                    if (rank == 0) expect(d.run(drive::send(t, 1, 7, {&token, 1})).ok(), "could not send");
                    if (rank != 1) return;  // both leave, one of them without a word
                    std::this_thread::sleep_for(50ms);
                    expect(d.run(drive::recv(t, 0, 7, {&token, 1})).ok(), "what was sent before leaving is lost");
                    const status s = d.run(drive::recv(t, 0, 8, {&token, 1}));
                    expect(s.code == errc::peer_left && s.peer == 0, "another outcome");
                  }};
  CHECK(world.trouble() == "");
}

TEST_CASE("the first cause of an abort is everybody's") {
  shm_world world{3, [](int rank, shm_world& w) {
                    shm_transport t{w.take_place(rank)};
                    rank_driver<shm_transport> d{t};
                    if (rank == 1) {
                      const auto guard = d.lock();
                      t.abort({errc::timed_out, 0, 2, 0});
                    }
                    std::byte in{};
                    const status s = d.run(drive::recv(t, (rank + 1) % 3, 7, {&in, 1}));
                    t.abort({errc::aborted, 0, 0, 0});
                    expect(s.code == errc::timed_out && s.peer == 2, "another cause");
                    expect(t.failure().code == errc::timed_out, "another failure");
                    expect(!d.run(drive::send(t, (rank + 1) % 3, 7, {&in, 1})).ok(), "a failed world sent something");
                  }};
  CHECK(world.trouble() == "");
}

TEST_CASE("a child that a rank forks does not say goodbye for it") {
  shm_world world{2, [](int rank, shm_world& w) {
                    auto t = std::make_unique<shm_transport>(w.take_place(rank));
                    if (rank == 1) {
                      const pid_t pid = ::fork();
                      if (pid == 0) {
                        t.reset();
                        ::_exit(0);
                      }
                      int code = 0;
                      expect(::waitpid(pid, &code, 0) == pid && code == 0, "the child failed");
                      std::this_thread::sleep_for(50ms);
                    }
                    rank_driver<shm_transport> d{*t, 0};
                    expect(d.run(drive::barrier(*t, 1)).ok(), "the barrier failed");
                  }};
  CHECK(world.trouble() == "");
}

TEST_CASE("a transport leaves nothing behind: no descriptor, no mapping, no name") {
  shm_world world{2, [](int rank, shm_world& w) {
                    for (int round = 0; round < 3; ++round) {
                      const std::size_t before = drive::open_descriptors();
                      std::string name;
                      {
                        // A world after a world in the same processes.
                        std::optional<tutti::shm_export> offer;
                        if (rank == 0) offer.emplace(2, tutti::shm_options{.heap_bytes = 1 << 20});
                        if (offer) w.publish(offer->name());
                        w.word(static_cast<std::size_t>(round * 2 + rank)) = 1;
                        while (w.word(static_cast<std::size_t>(round * 2 + 1 - rank)) == 0)
                          std::this_thread::sleep_for(1ms);
                        const tutti::roster all = w.meet(rank);
                        name = w.name();
                        shm_transport t{rank == 0 ? offer->hand_out(all, 0, tutti::after(20s))
                                                  : tutti::shm_import(name, all, 1, tutti::after(20s))};
                        expect(drive::lines_with("/proc/self/maps", "/memfd:tutti") > 0, "where is the memory?");
                        rank_driver<shm_transport> d{t};
                        expect(t.allocate(1000) != nullptr, "no memory");
                        expect(d.run(drive::barrier(t, 1)).ok(), "the barrier failed");
                        expect(!drive::name_exists(name.substr(1)), "the socket's name is still there");
                      }
                      expect(drive::open_descriptors() == before, "a descriptor is left");
                      expect(drive::lines_with("/proc/self/maps", "/memfd:tutti") == 0, "a mapping is left");
                    }
                  }};
  CHECK(world.trouble() == "");
  CHECK_FALSE(drive::name_exists(world.name().substr(1)));
  CHECK(drive::lines_with("/proc/self/maps", "/memfd:tutti") == 0);
}

TEST_CASE("a transport tells who is behind, and names everybody") {
  shm_world world{
      3, [](int rank, shm_world& w) {
        shm_transport t{w.take_place(rank)};
        rank_driver<shm_transport> d{t};
        t.note_issue(rank == 1 ? 39 : 40);
        expect(d.run(drive::barrier(t, 1)).ok(), "the barrier failed");
        expect(t.waiting_for(nullptr, rank == 1 ? 39 : 40) == (rank == 1 ? -1 : 1), "waits for somebody else");
        const std::string who = t.describe(1);
        expect(who == "rank 1 (host " + tutti::os::hostname() + ", pid " + std::to_string(w.of(1).pid) +
                          "), last seen at #39",
               who);
        expect(t.describe(-1) == "an unknown rank" && t.describe(3) == "an unknown rank", "knows a stranger");
        expect(t.ranks_per_core() > 0 && t.maps(0) && t.maps(2), "odd numbers");
        expect(d.run(drive::barrier(t, 2)).ok(), "the barrier failed");
      }};
  CHECK(world.trouble() == "");
}

TEST_CASE("ranks on other machines are refused, as shared memory cannot reach them") {
  tutti::roster all{drive::myself(0), drive::myself(3)};
  all[0].rank = 2;  // ranks 0 and 1 are elsewhere
  all[1].memory_domain = "another machine";
  tutti::shm_export offer{1, {.heap_bytes = 1 << 20}};
  tutti::shm_attachment place = offer.hand_out(all, 2, tutti::after(1s));
  CHECK_THROWS_AS(shm_transport{std::move(place)}, tutti::usage_error);
}
