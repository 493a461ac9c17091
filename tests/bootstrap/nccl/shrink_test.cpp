#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <support/gpus.hpp>
#include <tutti/bootstrap/nccl/shrink.hpp>
#include <tutti/bootstrap/survivors.hpp>
#include <tutti/store/memory_store.hpp>
#include <tutti/transport/threads.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::errc;

/// One of four ranks ends in the middle of a collective; the others agree on that and go on.
void lose_one(fake::machine& machine, std::size_t revoked, std::size_t shrunk,
              tutti::nccl_calls calls = tutti::nccl_calls::nonblocking) {
  tutti::memory_store store;
  auto smaller = std::make_shared<tutti::threads_hub>(3);
  std::atomic<int> waiting{0}, through{0};
  const auto ranks = [&](gpus& g, auto& world) {
    std::vector<float> v(1, 1);
    if (g.rank() == 1) {
      while (waiting < 3) std::this_thread::yield();
      world.abort();
      throw tutti::error{{errc::aborted}, "gone"};
    }
    auto running = g.all_reduce(on_device(v));
    ++waiting;
    errc kind{};
    const std::string words = words_of([&] { running.wait(); }, kind);
    CHECK(kind == errc::aborted);
    CHECK(words.find("aborted by rank 1") != std::string::npos);
    const int gone = g.backend().failure().peer;
    const auto left = tutti::agree_on_survivors(store, g.rank(), g.size(), std::array{gone}, tutti::after(60s));
    CHECK(left == std::vector<int>{0, 2, 3});
    const auto me = static_cast<int>(std::ranges::find(left, g.rank()) - left.begin());
    auto host = tutti::join(smaller, me);
    auto fewer = tutti::shrink_nccl(g, host, {.calls = calls, .patience = 1s});
    CHECK(fewer.size() == 3);
    CHECK(fewer.rank() == me);
    CHECK(fewer.backend().device() == g.backend().device());
    std::vector<float> w(1, static_cast<float>(g.rank()));
    fewer.all_reduce(on_device(w)).wait();
    CHECK(w[0] == 5);
    fewer.barrier().wait();
    // What it was made of goes as soon as it is there, not with it.
    const auto limit = tutti::after(10s);
    const auto communicators = [&] {
      const std::scoped_lock guard{machine.mutex};
      return machine.communicators;
    };
    while (communicators() > 3 && tutti::clock::now() < limit) std::this_thread::yield();
    CHECK(communicators() == 3);
    host.barrier().wait();
    ++through;
  };
  CHECK_THROWS_AS(run_gpus(4, ranks, {.calls = calls, .patience = 1s}), tutti::error);
  CHECK(through == 3);
  std::size_t revokes = 0, shrinks = 0;
  for (const fake::call& c : machine.calls()) {
    revokes += c.what == "ncclCommRevoke" && c.rank != 1;
    shrinks += c.what == "ncclCommShrink";
  }
  CHECK(revokes == revoked);
  CHECK(shrinks == shrunk);
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
}

TEST_CASE("shrink_nccl: the others go on with NCCL's own smaller communicator") {
  fake::machine machine;
  lose_one(machine, 3, 3);
}

TEST_CASE("shrink_nccl: an NCCL that cannot revoke, or does not manage to, begins again") {
  {
    fake::machine machine;
    machine.version = 22705;
    lose_one(machine, 0, 0);
  }
  fake::machine machine;
  machine.fail("ncclCommRevoke", {3, 0, -1, true});
  lose_one(machine, 0, 0);
}

TEST_CASE("shrink_nccl: where an error of the lost peer stays with what was revoked, they begin again") {
  for (const auto calls : {tutti::nccl_calls::blocking, tutti::nccl_calls::nonblocking}) {
    fake::machine machine;
    machine.errors_stay = true;
    lose_one(machine, 3, 0, calls);
  }
}

TEST_CASE("shrink_nccl: a shrink that fails is an error, and leaves nothing behind") {
  fake::machine machine;
  auto again = std::make_shared<tutti::threads_hub>(1);
  const auto ranks = [&](gpus& g, auto&) {
    auto host = tutti::join(again, 0);
    CHECK_THROWS_AS((void)tutti::shrink_nccl(g, host), tutti::usage_error);
    g.abort();
    machine.fail("ncclCommInitRankConfig", {3});
    errc kind{};
    words_of([&] { (void)tutti::shrink_nccl(g, host, {.patience = 200ms}); }, kind);
    CHECK(kind == errc::device);
  };
  run_gpus(1, ranks, {.patience = 200ms});
  CHECK(machine.left() == 0);
  auto pair = std::make_shared<tutti::threads_hub>(2);
  auto one = std::make_shared<tutti::threads_hub>(1);
  const auto of_two = [&](gpus& g, auto&) {
    g.abort();
    if (g.rank() == 1) return;
    auto host = tutti::join(one, 0);
    machine.fail("ncclCommShrink", {3});
    errc kind{};
    words_of([&] { (void)tutti::shrink_nccl(g, host, {.patience = 200ms}); }, kind);
    CHECK(kind == errc::device);
  };
  run_gpus(2, of_two, {.patience = 200ms});
  CHECK(machine.left() == 0);
}

}  // namespace
