#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator/overlapping.hpp>

#include <async/allocations.hpp>
#include <communicator/ranks.hpp>
#include <communicator/without_allocating.hpp>
#include <support/grid.hpp>

namespace {

using ranks::world;
using tutti::task;
using tutti_test::expect_none;
using tutti_test::expect_none_of_any;

#if defined(TUTTI_TEST_COUNTS_NOTHING)
constexpr bool counting = false;
#else
constexpr bool counting = true;
#endif

TEST_CASE("allocation: no collective call allocates, of any size, once it is warm") {
  if (!counting) return;
  for (const int size : tutti_test::grid<int>({1, 2, 3}, {3}))
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{4} << 10, std::size_t{200} << 10})
      CHECK_NOTHROW(tutti::run_threads(size, [bytes](world& on) { expect_none_of_any(on, bytes, [] {}); }));
}

/// Every algorithm over messages that a collective can be asked for: its temporary memory. What messages lie in that
/// come before they are asked for grows whenever there are more at a time than ever before.
void expect_none_over_messages(world& on, std::size_t bytes) {
  using tutti::algorithm;
  const std::size_t count = bytes / sizeof(float), n = static_cast<std::size_t>(on.size());
  const int last = on.size() - 1;
  std::vector<float> data(count), other(count), blocks(n * count), others(n * count);
  const std::vector<std::size_t> counts(n, count);
  const std::vector<std::span<float>> list{data, other};
  const auto none = [&](const char* what, algorithm via, auto call) {
    expect_none(
        on, (std::string(what) + " by " + std::string(tutti::name(via))).c_str(), bytes,
        [&] { call(tutti::call_options{.via = via}); }, allocations::aligned);
  };
  const auto own = std::span{blocks}.subspan(static_cast<std::size_t>(on.rank()) * count, count);
  for (const auto via : {algorithm::ring, algorithm::recursive_doubling, algorithm::halving_doubling}) {
    none("all_reduce", via, [&](auto how) { on.all_reduce(data, tutti::sum, how).wait(); });
    if (via != algorithm::halving_doubling)
      none("all_reduce_coalesced", via, [&](auto how) { on.all_reduce_coalesced(list, tutti::sum, how).wait(); });
  }
  none("reduce_scatter", algorithm::ring, [&](auto how) { on.reduce_scatter(blocks, data, tutti::sum, how).wait(); });
  none("reduce_scatter in place", algorithm::ring,
       [&](auto how) { on.reduce_scatter(blocks, own, tutti::sum, how).wait(); });
  none("reduce_scatter_v", algorithm::ring,
       [&](auto how) { on.reduce_scatter_v(blocks, data, counts, tutti::sum, how).wait(); });
  for (const auto via : {algorithm::chain, algorithm::tree})
    none("reduce", via, [&](auto how) { on.reduce(data, last, tutti::sum, how).wait(); });
  for (const auto via : {algorithm::chain, algorithm::recursive_doubling}) {
    none("scan", via, [&](auto how) { on.scan(data, tutti::sum, how).wait(); });
    none("exclusive_scan", via, [&](auto how) { on.exclusive_scan(data, other, tutti::sum, how).wait(); });
  }
  for (const auto via : {algorithm::tree, algorithm::linear}) {
    none("gather", via, [&](auto how) { on.gather(data, blocks, last, how).wait(); });
    none("scatter", via, [&](auto how) { on.scatter(blocks, data, 0, how).wait(); });
  }
  for (const auto via : {algorithm::tree, algorithm::chain})
    none("broadcast", via, [&](auto how) { on.broadcast(data, last, how).wait(); });
  for (const auto via : {algorithm::ring, algorithm::bruck})
    none("all_gather", via, [&](auto how) { on.all_gather(data, blocks, how).wait(); });
  none("all_to_all", algorithm::pairwise, [&](auto how) { on.all_to_all(blocks, others, how).wait(); });
  none("all_to_all in place", algorithm::pairwise, [&](auto how) { on.all_to_all(blocks, blocks, how).wait(); });
}

TEST_CASE("allocation: nor does an algorithm over messages, for what it computes in") {
  if (!counting) return;
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{4} << 10, std::size_t{200} << 10})
      CHECK_NOTHROW(tutti::run_threads(size, [bytes](world& on) { expect_none_over_messages(on, bytes); }));
}

/// Messages that come before they are asked for, always, as a last one is waited for first; or whose sender waits.
void expect_none_between_two(world& on, std::size_t bytes, std::size_t early) {
  std::vector<std::vector<std::byte>> all(early + 1, std::vector<std::byte>(bytes));
  std::vector<tutti::op> sent;
  sent.reserve(early);
  expect_none(on, "messages that are received in another order", bytes, [&] {
    if (on.rank() == 0) {
      on.barrier().wait();
      for (std::size_t i = 0; i < early; ++i) sent.push_back(on.send(all[i], 1, static_cast<std::uint32_t>(i)));
      on.send(all[early], 1, 1000).wait();
      for (tutti::op& s : sent) s.wait();
      sent.clear();
    } else {
      auto last = on.recv(all[early], 0, 1000);
      on.barrier().wait();
      last.wait();
      for (std::size_t i = early; i-- > 0;) on.recv(all[i], 0, static_cast<std::uint32_t>(i)).wait();
    }
  });
}

TEST_CASE("allocation: nor does a message that nobody has asked for yet") {
  if (!counting) return;
  const auto none = [](std::size_t bytes, std::size_t early) {
    CHECK_NOTHROW(tutti::run_threads(2, [=](world& on) { expect_none_between_two(on, bytes, early); }));
  };
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{4}, std::size_t{4} << 10, std::size_t{200} << 10, std::size_t{300} << 10})
    none(bytes, 2);
  none(std::size_t{60} << 10, 12);  // all of them fit into what is on its way, so that no send waits
}

TEST_CASE("allocation: nor does the check of many blocks whose offsets do not ascend") {
  if (!counting) return;
  std::vector<std::size_t> counts(100, 2), offsets(100);
  for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = 2 * (i * 37 % 100);
  std::size_t overlaps = 0;
  const auto look = [&] {
    const auto found = tutti::detail::overlapping(counts, offsets);
    overlaps += found.first != found.second ? 1 : 0;
  };
  look();
  const long before = allocations::count.load();
  for (int i = 0; i < 10; ++i) look();
  CHECK(allocations::count.load() == before);
  CHECK(overlaps == 0);
}

TEST_CASE("allocation: a steady loop of coroutines allocates nothing") {
  if (!counting) return;
  std::atomic<long> during{0};
  tutti::run_threads(3, [&](auto& w) {
    const auto step = [](world& on, std::vector<float>& small, std::vector<float>& large) -> task<> {
      auto a = on.all_reduce(small);
      auto b = on.all_reduce(large, tutti::max);
      auto c = on.barrier();
      co_await tutti::when_all(std::tuple{std::move(a), std::move(b), std::move(c)});
      (void)co_await on.all_reduce(1.0);
      co_await on.broadcast(small, 1);
    };
    const auto loop = [](world& on, auto make, std::vector<long>& counted) -> task<> {
      std::vector<float> small(100), large(50000), blocks(300), others(300);
      const std::vector<std::size_t> counts{50, 0, 250};
      const std::vector<std::span<float>> list{small, large, blocks};
      const auto mine = std::span{large}.first(counts[static_cast<std::size_t>(on.rank())]);
      auto prepared = on.prepare().all_reduce(small);
      for (int round = 0; round < 6; ++round) {
        const long before = allocations::count.load();
        for (int i = 0; i < 50; ++i) {
          co_await prepared.start();
          co_await on.all_reduce_coalesced(list);
          co_await on.reduce(large, 0);
          co_await on.scan(small);
          (void)co_await on.exclusive_scan(1);
          co_await on.gather(small, blocks, 1);
          co_await on.scatter(blocks, small, 2);
          co_await on.all_to_all(blocks, others);
          co_await on.all_gather_v(mine, blocks, counts);
          co_await on.reduce_scatter_v(blocks, mine, counts);
          co_await on.gather_v(mine, blocks, counts, 0);
          co_await on.scatter_v(blocks, mine, counts, 0);
          co_await make(on, small, large);
          co_await on.all_gather(small, blocks);
          co_await on.reduce_scatter(blocks, small);
        }
        if (round > 1) counted.push_back(allocations::count.load() - before);
      }
    };
    // As in expect_none, a frame or an early message more than ever before may come late: of four rounds in one.
    std::vector<long> counted;
    counted.reserve(4);
    tutti::sync_wait(w, loop(w, step, counted));
    std::sort(counted.begin(), counted.end());
    during.fetch_add(counted.at(2));
    w.barrier().wait();
  });
  CHECK(during.load() == 0);
}

}  // namespace
