#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tutti/backend/composed.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/impl/bootstrap/threads.hpp>

#include <support/expect.hpp>
#include <support/grid.hpp>

namespace {

using tutti::algorithm;
using tutti::call_options;

/// Simulated ranks that are placed on machines.
class placed_transport : public tutti::sim_transport {
 public:
  using sim_transport::sim_transport;
  [[nodiscard]] int machine_of(int rank) const noexcept { return placement[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool maps(int other) const noexcept { return machine_of(other) == machine_of(rank()); }
  [[nodiscard]] std::byte* resolve(int owner, std::uint64_t where, std::size_t bytes = 1) const noexcept {
    return maps(owner) ? sim_transport::resolve(owner, where, bytes) : nullptr;
  }
  static inline std::vector<int> placement;
};
using placed = tutti::composed<placed_transport>;

using tutti_test::expect;

/// Blocks of every rank, which have a hierarchical way where machines have as many ranks.
void use_blocks(tutti::communicator<placed>& world, algorithm via) {
  const auto n = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
  const call_options how{.via = via};
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70000}}) {
    std::vector<long> own(count, world.rank()), all(n * count, -1), operands, sum(count, -1);
    for (std::size_t b = 0; b < n; ++b) operands.insert(operands.end(), count, static_cast<long>(100 * b + me));
    auto gathered = world.all_gather(own, all, how);
    auto reduced = world.reduce_scatter(operands, sum, tutti::sum, how);  // two in flight
    reduced.wait();
    gathered.wait();
    for (std::size_t i = 0; i < all.size(); ++i) expect(all[i] == static_cast<long>(i / count), "all_gather");
    expect(sum == std::vector<long>(count, static_cast<long>(n * (100 * me) + n * (n - 1) / 2)), "reduce_scatter");
    auto shared = world.template allocate<long>(n * count);
    std::copy(operands.begin(), operands.end(), shared.span().begin());
    const auto mine = shared.span().subspan(me * count, count);
    world.reduce_scatter(shared, mine, tutti::sum, how).wait();
    world.all_gather(mine, shared, how).wait();
    for (std::size_t i = 0; i < n * count; ++i)
      expect(shared.span()[i] == static_cast<long>(n * (100 * (i / count)) + n * (n - 1) / 2), "in shared memory");
  }
}

/// Every other collective that has a hierarchical way, by it and by what is chosen.
void use(tutti::communicator<placed>& world, algorithm via) {
  const int n = world.size();
  const call_options how{.via = via};
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70000}}) {
    const int root = static_cast<int>(count) % n;
    std::vector<long> v(count, world.rank()), sum(count, -1);
    world.barrier().wait();
    world.reduce(v, sum, root, tutti::sum, how).wait();
    const std::vector<long> all(count, n * (n - 1) / 2), most(count, n - 1);
    expect(world.rank() != root || sum == all, "reduce");
    auto broadcast = world.broadcast(sum, root, how);
    auto all_reduce = world.all_reduce(v, tutti::max, how);  // two in flight
    all_reduce.wait();
    broadcast.wait();
    expect(sum == all, "broadcast");
    expect(v == most, "all_reduce");
    // In memory that the ranks of a machine map, where nothing is staged inside.
    auto shared = world.template allocate<float>(count);
    for (float& x : shared.span()) x = static_cast<float>(world.rank());
    world.all_reduce(shared, tutti::mean, how).wait();
    const float mean = static_cast<float>(n * (n - 1) / 2) / static_cast<float>(n);
    for (const float x : shared.span()) expect(x == mean, "all_reduce of shared memory");
    if (world.rank() == root) shared.span()[0] = -1;
    world.broadcast(shared, root, how).wait();
    expect(shared.span()[0] == -1 && shared.span().back() == (count == 1 ? -1 : mean), "broadcast of shared memory");
  }
  world.barrier().wait();
}

TEST_CASE("machines: collectives of 2 to 9 ranks on machines of all sizes") {
  for (int n = 2; n <= 9; ++n)
    for (const int machines : {2, 3}) {
      CAPTURE(n);
      CAPTURE(machines);
      for (const bool even : {false, true}) {
        placed_transport::placement.clear();
        for (int r = 0; r < n; ++r)
          placed_transport::placement.push_back(even ? r % machines : r < n - 2 ? 0 : r % machines);
        const auto map = tutti::algo::node_map::of(placed_transport::placement, 0);
        const bool layered = map.layered();
        tutti::for_seeds(1, tutti_test::slow ? 1 : 2, [&](std::uint64_t seed) {
          tutti::run_sim<placed>(n, seed, [&](auto& world) {
            use(world, algorithm::automatic);
            if (layered) use(world, algorithm::hierarchical);
            use_blocks(world, algorithm::automatic);
            if (layered && map.even) use_blocks(world, algorithm::hierarchical);
            auto part = world.split(world.rank() % 2);
            use(part, algorithm::automatic);
            use_blocks(part, algorithm::automatic);
          });
        });
      }
    }
}

TEST_CASE("machines: a group inside of one machine works in its memory, as does one that lost the others") {
  placed_transport::placement = {0, 1, 0, 1, 0};
  tutti::run_sim<placed>(5, 3, [&](auto& world) {
    using tutti::algo::connectivity;
    expect(world.backend().links() == connectivity::machines, "the world is layered");
    auto here = world.split(placed_transport::placement[static_cast<std::size_t>(world.rank())]);
    expect(here.backend().links() == connectivity::memory, "one machine");
    auto across = world.split(world.rank() < 2 ? 0 : 1);
    if (world.rank() < 2) expect(across.backend().links() == connectivity::messages, "one rank on each machine");
    for (const std::size_t count : {std::size_t{1}, std::size_t{100000}}) {
      std::vector<int> v(count, 1);
      here.all_reduce(v, tutti::sum, {.via = algorithm::direct}).wait();
      expect(v == std::vector<int>(count, here.size()), "all_reduce inside");
    }
  });
}

TEST_CASE("machines: ranks of one machine that call different things are told") {
  placed_transport::placement = {0, 0, 1, 1};
  const auto ends = [](auto usual, auto other) {
    try {
      tutti::run_sim<placed>(4, 5, [&](auto& world) {
        world.barrier().wait();
        std::vector<float> v(5000);
        world.all_reduce(v).wait();
        world.broadcast(v, 3).wait();
        if (world.rank() == 2)
          other(world, v);
        else
          usual(world, v);
        world.barrier().wait();
      });
    } catch (const tutti::error& e) {
      CAPTURE(std::string{e.what()});
      CHECK(e.kind() == tutti::errc::mismatch);
      return std::string{e.what()};
    }
    return std::string{"no failure"};
  };
  const auto sum = [](auto& w, auto& v) { w.all_reduce(v).wait(); };
  const auto most = [](auto& w, auto& v) { w.all_reduce(v, tutti::max).wait(); };
  const auto few = [](auto& w, auto& v) { w.all_reduce(std::span{v}.first(7)).wait(); };
  const auto barrier = [](auto& w, auto&) { w.barrier().wait(); };
  const auto from_0 = [](auto& w, auto& v) { w.broadcast(v, 0).wait(); };
  const auto from_3 = [](auto& w, auto& v) { w.broadcast(v, 3).wait(); };
  const auto said = [](const std::string& all, const char* part) { return all.find(part) != std::string::npos; };
  CHECK(said(ends(sum, most), "max"));
  CHECK(said(ends(most, sum), "max"));
  CHECK(said(ends(sum, few), "7"));
  CHECK(said(ends(sum, barrier), "barrier"));
  CHECK(said(ends(barrier, from_0), "broadcast"));
  CHECK(said(ends(from_0, from_3), "broadcast"));
  CHECK(said(ends(from_3, sum), "all_reduce"));
}

/// Ranks that are threads, and are placed on machines.
class threads_on_machines : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] static int machine_of(int rank) noexcept { return rank / 2; }
  [[nodiscard]] bool maps(int other) const noexcept { return machine_of(other) == machine_of(rank()); }
  [[nodiscard]] std::byte* resolve(int owner, std::uint64_t where, std::size_t bytes = 1) const noexcept {
    return maps(owner) ? threads_transport::resolve(owner, where, bytes) : nullptr;
  }
};
using two_machines = tutti::communicator<tutti::composed<threads_on_machines>>;

/// Four ranks on two machines; what became of each of them.
template <class F>
std::vector<std::string> run_two_machines(F f) {
  auto hub = std::make_shared<tutti::threads_hub>(4);
  std::vector<std::string> ends(4, "ok");
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.emplace_back([&, r] {
      auto world = tutti::join<tutti::composed<threads_on_machines>>(hub, r, std::chrono::seconds(60));
      try {
        f(world);
      } catch (const tutti::error& e) {
        ends[static_cast<std::size_t>(r)] =
            (e.kind() == tutti::errc::mismatch ? "mismatch: " : "") + std::string{e.what()};
      }
    });
  ranks.clear();
  return ends;
}

constexpr int kinds = 9;
void call(two_machines& w, int kind) {
  constexpr std::size_t n = 1000;
  std::vector<float> one(n), other(n), four(4 * n), more(4 * n);
  switch (kind) {
    case 0:
      return w.barrier().wait();
    case 1:
      return w.all_reduce(one).wait();
    case 2:
      return w.all_reduce(one, tutti::sum, {.via = algorithm::ring}).wait();
    case 3:
      return w.broadcast(one, 3).wait();
    case 4:
      return w.reduce(one, other, 0).wait();
    case 5:
      return w.all_gather(one, four).wait();
    case 6:
      return w.gather(one, four, 1).wait();
    case 7:
      return w.all_to_all(four, more).wait();
    default:
      return w.scan(one, other).wait();
  }
}

// They may exchange no message that tells: whoever waits asks.
TEST_CASE("machines: ranks that call different collectives are told, also where no message of theirs meets") {
  for (int usual = 0; usual < kinds; ++usual)
    for (const int apart : tutti_test::grid<int>({1, 2, 5}, {1 + usual % 2})) {
      const int kind = (usual + apart) % kinds, odd = usual % 2 == 0 ? 3 : 1;
      CAPTURE(usual);
      CAPTURE(kind);
      const auto ends = run_two_machines([&](two_machines& w) {
        for (int i = 0; i < 2; ++i)
          for (const int k : {usual, kind}) call(w, k);
        call(w, w.rank() == odd ? kind : usual);
        w.barrier().wait();
      });
      for (const std::string& e : ends) CHECK_MESSAGE(e.starts_with("mismatch: "), e);
    }
}

TEST_CASE("machines: a rank that comes late is no mismatch, whatever is asked") {
  const auto ends = run_two_machines([&](two_machines& w) {
    for (int k = 0; k < kinds; ++k) {
      if (k % 4 == w.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      call(w, k);
    }
    auto part = w.split(w.rank() % 2);
    if (w.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    call(part, 1);
  });
  for (const std::string& e : ends) CHECK(e == "ok");
}

// The operations of groups that one split made have the same numbers: only the own group may be asked.
TEST_CASE("machines: operations of a group behind one of the world, which waits for another group, are no mismatch") {
  using namespace std::chrono_literals;
  const auto ends = run_two_machines([](two_machines& w) {
    auto pair = w.split(w.rank() / 2);
    std::vector<float> all(5000), some(10000), more(20000);
    w.barrier().wait();
    if (w.rank() < 2) {
      auto of_world = w.all_reduce(all);
      if (w.rank() == 1) std::this_thread::sleep_for(300ms);
      auto first = pair.all_reduce(some), second = pair.all_reduce(more);
      first.wait();
      second.wait();
      of_world.wait();
    } else {
      pair.all_reduce(more).wait();
      pair.all_reduce(some).wait();
      for (int i = 0; i < 400; ++i) {
        std::this_thread::sleep_for(1ms);
        w.engine().poll();
      }
      w.all_reduce(all).wait();
    }
    w.barrier().wait();
  });
  for (const std::string& e : ends) CHECK(e == "ok");
}

TEST_CASE("machines: a rank that is lost is named, wherever it was") {
  placed_transport::placement = {0, 1, 1, 0, 2};
  for (int lost = 0; lost < 5; ++lost)
    for (const std::uint64_t step : {60U, 200U, 400U}) try {
        tutti::run_sim<placed>(5, {.seed = 7, .lose_rank = lost, .lose_at_step = step}, [&](auto& world) {
          for (int i = 0; i < 50; ++i) use(world, algorithm::hierarchical);
        });
        FAIL("nobody was missed");
      } catch (const tutti::error& e) {
        CAPTURE(std::string{e.what()});
        CHECK(e.cause().peer == lost);
      }
}

}  // namespace
