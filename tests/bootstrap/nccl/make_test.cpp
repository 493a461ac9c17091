#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <support/gpus.hpp>
#include <support/words.hpp>
#include <tutti/bootstrap/nccl/device_inventory.hpp>
#include <tutti/bootstrap/nccl/make.hpp>

namespace {

using tutti_test::contains;

/// A rank without memory, while it says what it has, or when it makes its driver.
struct starving : fake::nccl {
  struct cuda : fake::cuda {};
  inline static thread_local int allocations = -1;
  static void allocate_one() {
    if (allocations-- == 0) throw std::bad_alloc{};
  }
  static std::string missing() { return allocate_one(), std::string{}; }
};

}  // namespace

template <>
struct tutti::detail::nccl_streams<starving::cuda> : nccl_streams<fake::cuda> {
  explicit nccl_streams(int device) : nccl_streams<fake::cuda>(device) { starving::allocate_one(); }
};

namespace {

using namespace std::chrono_literals;
using tutti::device_sharing;
using tutti::errc;

/// What each rank is told.
std::vector<std::string> refusals(fake::machine& machine, int n, errc wanted, tutti::nccl_options how = {}) {
  std::vector<std::string> words(static_cast<std::size_t>(n));
  tutti::run_threads(n, [&](tutti::communicator<tutti::threads>& world) {
    fake::rank = world.rank();
    fake::current_device = 0;
    errc kind{};
    words[static_cast<std::size_t>(world.rank())] =
        words_of([&] { tutti::make_nccl<fake::nccl>(world, how).barrier().wait(); }, kind);
    CHECK(kind == wanted);
  });
  CHECK(machine.left() == 0);
  return words;
}
TEST_CASE("make_nccl: two ranks on one GPU, unless on purpose") {
  fake::machine machine;
  machine.uuid_of = {{2, 1}};  // device 2 is device 0
  const auto told = refusals(machine, 3, errc::rendezvous);
  CHECK(told[0] == told[2]);
  CHECK(told[0] == told[1]);
  CHECK(contains(told[0], "rank 0 (host "));
  CHECK(contains(told[0], "rank 2 (host "));
  CHECK(contains(told[0], "use the same GPU (a fake at 0000:00:00.0, device 0 and 2 of theirs)"));
  CHECK(contains(told[0], "world.local_rank()"));
  CHECK(machine.calls().empty());  // before NCCL was asked to do anything
  run_gpus(3, [](gpus& g, auto&) { g.barrier().wait(); }, {.sharing = device_sharing::allowed});
  run_gpus(2, [](gpus& g, auto&) { g.barrier().wait(); }, {.device = 1, .sharing = device_sharing::allowed});
}

TEST_CASE("make_nccl: a rank that has no memory keeps nobody waiting") {
  for (const int before : {0, 1}) {
    fake::machine machine;
    tutti::run_threads(3, [&](tutti::communicator<tutti::threads>& world) {
      fake::rank = world.rank();
      fake::current_device = 0;
      starving::allocations = world.rank() == 1 ? before : -1;
      errc kind{};
      bool starved = false;
      std::string words;
      try {
        words = words_of([&] { (void)tutti::make_nccl<starving>(world, {.timeout = 30s}); }, kind);
      } catch (const std::bad_alloc&) {
        starved = true;
      }
      CHECK(starved == (world.rank() == 1 && before == 1));
      if (!starved) CHECK(kind == errc::device);
      if (before == 0) CHECK(contains(words, "std::bad_alloc"));
      world.barrier().wait();
    });
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("make_nccl: GPUs without a UUID are told apart by where they are") {
  fake::machine machine;
  machine.uuid_of = {{0, 0}, {1, 0}, {2, 0}};
  run_gpus(3, [](gpus& g, auto&) { g.barrier().wait(); });
  machine.bus_of = {{2, 1}};  // rank 2 counts its devices in another order
  CHECK(
      contains(refusals(machine, 3, errc::rendezvous)[0], "use the same GPU (a fake at 0000:01:00.0, device 1 and 2"));
}

TEST_CASE("make_nccl: a network interface that is not there is named, on all ranks") {
  fake::machine machine;
  ::setenv("NCCL_SOCKET_IFNAME", "tutti_none,=lo", 1);
  const auto told = refusals(machine, 2, errc::rendezvous);
  ::unsetenv("NCCL_SOCKET_IFNAME");
  CHECK(told[0] == told[1]);
  CHECK(contains(told[0], "rank 0 (host "));
  CHECK(contains(told[0], "cannot be reached by NCCL: NCCL_SOCKET_IFNAME=tutti_none,=lo names no network interface"));
  CHECK(machine.calls().empty());
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  run_gpus(2, [](gpus& g, auto&) { g.barrier().wait(); });
  ::unsetenv("NCCL_SOCKET_IFNAME");
}

TEST_CASE("make_nccl: different or old versions of NCCL") {
  fake::machine machine;
  machine.version_of = {{1, 23004}};
  auto told = refusals(machine, 2, errc::protocol);
  CHECK(told[0] == told[1]);
  CHECK(contains(told[0], "rank 1 (host "));
  CHECK(contains(told[0], "2.28.9 and 2.30.4"));
  machine.version_of.clear();
  machine.version = 2708;
  told = refusals(machine, 2, errc::unsupported);
  CHECK(contains(told[1], "rank 0 (host "));
  CHECK(contains(told[1], "uses NCCL 2.7.8; 2.18 or newer"));
}

TEST_CASE("make_nccl: a rank without a GPU") {
  fake::machine machine{2};
  auto told = refusals(machine, 3, errc::device);
  CHECK(told[0] == told[2]);
  CHECK(contains(told[0], "rank 2 (host "));
  CHECK(contains(told[0], "device 2 of 2 that it sees; start fewer ranks"));
  machine.fail("cudaGetDeviceCount", {100, 0, 1});
  told = refusals(machine, 2, errc::device);
  CHECK(contains(told[0], "rank 1 (host "));
  CHECK(contains(told[0], "cudaErrorNoDevice"));
  CHECK(contains(told[0], "CUDA_VISIBLE_DEVICES"));
  machine.fail("cudaGetDeviceProperties", {700, 0, 0});
  CHECK(contains(refusals(machine, 2, errc::device)[1], "rank 0"));
}

TEST_CASE("make_nccl: the GPU that a rank takes when it is not told which") {
  const auto taken = [](int devices, tutti::nccl_options how) {
    fake::machine machine{devices};
    std::vector<int> each(3);
    how.sharing = device_sharing::allowed;
    run_gpus(3, [&](gpus& g, auto& w) { each[static_cast<std::size_t>(w.rank())] = g.backend().device(); }, how);
    return each;
  };
  CHECK(taken(4, {}) == std::vector{0, 1, 2});
  CHECK(taken(1, {}) == std::vector{0, 0, 0});  // as with tutti-run --devices, where each sees another one
  CHECK(taken(2, {}) == std::vector{0, 1, 0});
  CHECK(taken(4, {.device = 3}) == std::vector{3, 3, 3});
}

TEST_CASE("make_nccl: an error in any call on the way ends it everywhere, and leaves nothing behind") {
  for (const std::string call : {"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig", "cudaMalloc",
                                 "cudaStreamCreateWithPriority", "cudaGetDevice", "ncclCommGetAsyncError"}) {
    CAPTURE(call);
    fake::machine machine;
    machine.fail(call, {call.starts_with("cuda") ? 700 : 3, 0, 0});
    const auto told = refusals(machine, 2, errc::device, {.patience = 200ms});
    CHECK(!told[0].empty());
    CHECK(!told[1].empty());
  }
}

TEST_CASE("make_nccl: NCCL that does not connect in time") {
  fake::machine machine;
  machine.fail("ncclCommInitRankConfig", {7, 0, 1, true});  // says "in progress" and makes nothing
  for (const std::string& told : refusals(machine, 2, errc::timed_out, {.join_timeout = 40ms, .patience = 1s}))
    CHECK(contains(told, "NCCL did not come up: "));
}

TEST_CASE("make_nccl: what NCCL met is told, also where the time is over before the host's world was heard") {
  fake::machine machine;
  machine.fail("ncclCommInitRankConfig", {3, 0, 0});
  for (const std::string& told : refusals(machine, 1, errc::device, {.join_timeout = 1ms, .patience = 5s}))
    CHECK(contains(told, "NCCL met "));
}

TEST_CASE("make_nccl: halves of a world have NCCL communicators of their own") {
  fake::machine machine;
  tutti::run_threads(4, [&](tutti::communicator<tutti::threads>& world) {
    fake::rank = world.rank();
    auto half = world.split(world.rank() / 2);
    gpus g = tutti::make_nccl<fake::nccl>(half, {.device = world.rank()});
    CHECK(g.world_rank(1) == world.rank() / 2 * 2 + 1);
    std::vector<float> v(1, static_cast<float>(world.rank()));
    g.all_reduce(on_device(v)).wait();
    CHECK(v[0] == (world.rank() < 2 ? 1 : 5));
  });
  CHECK(machine.left() == 0);
}

}  // namespace
