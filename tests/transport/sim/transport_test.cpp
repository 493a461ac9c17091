#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tutti/async/progress_thread.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/transport/concept.hpp>

#include <transport/drive.hpp>
#include <transport/sim_program.hpp>

namespace {

using namespace tutti;

static_assert(transport<sim_transport> && mapped_transport<sim_transport>);
static_assert(backend<sim>);

/// Runs `f(driver, rank)` on the transports of a world.
template <class F>
sim_record drive_world(int size, sim_options how, F f) {
  sim_record record;
  how.record = &record;
  const auto network = std::make_shared<sim_network>(size, how);
  for (int r = 0; r < size; ++r)
    network->schedule().start(r, how.stack_bytes, [&, r] {
      sim_transport link{network, r};
      drive::rank_driver rank{link, 0};
      f(rank, r);
    });
  if (!network->run()) throw std::runtime_error("does not end");
  return record;
}

TEST_CASE("sim_transport: messages of every size between all ranks, whatever the order of tags") {
  for (const sim_memory memory : {sim_memory::separate, sim_memory::shared})
    for_seeds(1, sim_program::seeds / 20, [&](std::uint64_t seed) {
      const sim_record record = drive_world(3, {.seed = seed, .memory = memory}, [&](auto& rank, int) {
        const std::vector<std::size_t> sizes{0, 1, 100, (64U << 10) - 1, 64U << 10, (64U << 10) + 1, 300'000};
        if (const std::string wrong = drive::all_to_all(rank, sizes); !wrong.empty()) throw std::runtime_error(wrong);
      });
      if (record.missed_wakes != 0) throw std::runtime_error("a rank was not woken");
    });
}

TEST_CASE("sim_transport: a goodbye comes after the last message, and leaves nobody waiting") {
  for_seeds(1, sim_program::seeds / 5, [](std::uint64_t seed) {
    std::vector<int> got(100);
    status end;
    drive_world(2, {.seed = seed}, [&](auto& rank, int r) {
      const std::vector<int> out(100, 7);
      if (r == 0) {
        (void)rank.wait(*rank.send(1, 1, std::as_bytes(std::span{out})));
      } else {
        if (!rank.wait(*rank.recv(0, 1, std::as_writable_bytes(std::span{got}))).ok()) return;
        end = rank.wait(*rank.recv(0, 2, std::as_writable_bytes(std::span{got})));
      }
    });
    if (got != std::vector<int>(100, 7)) throw std::runtime_error("the message was lost");
    if (end != status{errc::peer_left, 0, 0, 0}) throw std::runtime_error("the receiver was not told");
  });
}

TEST_CASE("sim_transport: an abort reaches everyone, with one cause") {
  for_seeds(1, sim_program::seeds / 5, [](std::uint64_t seed) {
    std::vector<status> ends(4);
    run_sim(4, seed, [&](communicator<sim>& world) {
      try {
        const auto met = [&](int r) { return static_cast<std::uint64_t>(r) == seed % 4; };
        auto waiting = world.barrier();
        if (met(world.rank())) world.abort();
        waiting.wait();
        world.barrier().wait();
      } catch (const error& e) {
        ends[static_cast<std::size_t>(world.rank())] = e.cause();
      }
    });
    for (const status& s : ends)
      if (s != status{errc::aborted, 0, static_cast<int>(seed % 4), 0})
        throw std::runtime_error(s.code != errc::aborted ? "a rank went on" : "rank " + std::to_string(s.peer));
  });
}

TEST_CASE("sim_transport: only what was allocated is mapped in some worlds, everything in others") {
  int allocated = 0, anything = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    sim_network network{2, {.seed = seed, .memory = sim_memory::shared}};
    std::byte* p = network.allocate(1000);
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    CHECK(at % 4096 == 0);
    CHECK(std::vector<std::byte>(p, p + 1000) == std::vector<std::byte>(1000));
    const std::vector<std::byte> elsewhere(1000);
    const bool outside = network.maps(reinterpret_cast<std::uintptr_t>(elsewhere.data()), 1000);
    ++(outside ? anything : allocated);
    CHECK(network.maps(at, 1000));
    CHECK(network.maps(at + 500, 500));
    CHECK(network.maps(at + 500, 501) == outside);
    CHECK(network.maps(at + 2000, 1) == outside);
    CHECK(network.maps(at - 1, 1) == outside);
    network.deallocate(p);
    CHECK(network.maps(at, 1) == outside);
  }
  CHECK(allocated > 5);
  CHECK(anything > 5);
}

TEST_CASE("sim_transport: mapped buffers go without staging, and user code may poll in its own loop") {
  for_seeds(1, sim_program::seeds / 10, [](std::uint64_t seed) {
    run_sim(3, {.seed = seed, .memory = sim_memory::shared}, [](communicator<sim>& world) {
      auto v = world.allocate<int>(30'000);
      for (int& x : v) x = world.rank() + 1;
      auto reducing = world.all_reduce(v.span());
      for (int i = 0; i < 200 && world.rank() == 0; ++i) world.engine().poll();
      while (!reducing.done()) world.engine().poll();
      reducing.wait();
      for (const int x : v)
        if (x != 6) throw std::runtime_error("a wrong sum");
    });
  });
}

TEST_CASE("sim_transport: another thread cannot drive a simulated rank, and is told so") {
  errc end = errc::ok;
  run_sim(2, 3, [&](communicator<sim>& world) {
    if (world.rank() == 1) return;
    try {
      const progress_thread stranger{world.engine()};
      std::vector<int> v(10);
      world.recv(v, 1).wait();
    } catch (const error& e) {
      end = e.kind();
    }
  });
  // The peer may be gone before the stranger has come.
  CHECK((end == errc::unsupported || end == errc::peer_left));
}

TEST_CASE("sim_transport: another thread can abort") {
  int aborted = 0;
  run_sim(2, 3, [&](communicator<sim>& world) {
    if (world.rank() == 0) std::jthread([&] { world.abort(); }).join();
    try {
      world.barrier().wait();
      world.barrier().wait();
    } catch (const error& e) {
      aborted += e.kind() == errc::aborted && e.peer() == 0;
    }
  });
  CHECK(aborted == 2);
}

TEST_CASE("sim_transport: a communicator that is kept beyond its world fails, and hangs nobody") {
  for (std::uint64_t seed = 1; seed < 7; ++seed) {
    std::optional<communicator<sim>> kept;
    std::vector<int> v(10);
    run_sim(2, seed, [&](communicator<sim>& world) {
      auto part = world.split(0);
      if (world.rank() == 0) kept.emplace(std::move(part));
    });
    try {
      kept->all_reduce(v).wait();
      FAIL("went on");
    } catch (const error& e) {
      CHECK(e.kind() == errc::aborted);
    }
    try {
      kept->barrier().wait();
      FAIL("went on");
    } catch (const error& e) {
      CHECK(e.kind() == errc::aborted);
    }
  }
}

}  // namespace
