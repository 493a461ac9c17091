#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/reduction.hpp>

#include <async/allocations.hpp>
#include <support/expect.hpp>

namespace tutti_test {

/// Between two barriers nobody does anything but what is counted. A group that compares its ways to stage anew may need
/// a frame more than ever before, and so may messages that come earlier than ever: what comes again is in one of each
/// two rounds behind that.
template <class World, class Call>
void expect_none(World& on, const char* what, std::size_t bytes, Call call,
                 const std::atomic<long>& counted = allocations::count) {
  for (int i = 0; i < 100; ++i) call();
  for (int i = 0; i < 64; ++i) on.barrier().wait();  // of 64 small calls at least one is a routine, with a frame
  const auto of_a_round = [&] {
    const long before = counted.load();
    for (int i = 0; i < 50; ++i) call();
    on.barrier().wait();
    const long during = counted.load() - before;
    return on.all_reduce(during, tutti::max).wait();
  };
  long during = of_a_round();
  for (int again = 0; during != 0 && again < 4; ++again) during = std::max(of_a_round(), of_a_round());
  expect(during == 0, std::string(what) + " of " + std::to_string(bytes) + " bytes: " + std::to_string(during) +
                          " allocations in 50 operations of " + std::to_string(on.size()) + " ranks");
}

/// Every collective call of a communicator, blocks of `bytes` for each rank where it has blocks. What follows each call
/// may keep ranks from running ahead of others: messages that nobody has asked for yet lie in memory that grows when
/// there are more of them than ever before.
template <class World, class Following>
void expect_none_of_any(World& on, std::size_t bytes, Following following) {
  const std::size_t count = bytes / sizeof(float), n = static_cast<std::size_t>(on.size());
  const int last = on.size() - 1;
  std::vector<float> data(count), other(count), blocks(n * count), others(n * count);
  const std::vector<std::size_t> counts(n, count);
  const std::vector<std::span<float>> list{data, other};
  std::vector<float> long_message(std::size_t{64} << 10);
  on.broadcast(long_message, 0).wait();  // chooses how to stage, which needs memory once
  const auto none = [&](const char* what, auto call) {
    expect_none(on, what, bytes, [&] {
      call();
      following();
    });
  };
  none("all_reduce", [&] { on.all_reduce(data).wait(); });
  none("all_reduce into another buffer", [&] { on.all_reduce(data, other, tutti::max).wait(); });
  none("all_reduce of a value", [&] { (void)on.all_reduce(1.0F).wait(); });
  none("all_reduce that scales", [&] { on.all_reduce(data, tutti::premul_sum(0.5F)).wait(); });
  none("all_reduce_coalesced", [&] { on.all_reduce_coalesced(list).wait(); });
  std::vector<std::span<float>> descending;
  for (std::size_t i = 40; i-- > 0;) descending.push_back(std::span{data}.subspan(i * count / 40, count / 40));
  none("all_reduce_coalesced of many", [&] { on.all_reduce_coalesced(descending).wait(); });
  none("reduce_scatter", [&] { on.reduce_scatter(blocks, data).wait(); });
  none("reduce_scatter_v", [&] { on.reduce_scatter_v(blocks, data, counts).wait(); });
  none("reduce", [&] { on.reduce(data, last).wait(); });
  none("scan", [&] { on.scan(data).wait(); });
  none("exclusive_scan", [&] { on.exclusive_scan(data, other).wait(); });
  none("broadcast", [&] { on.broadcast(data, last).wait(); });
  none("broadcast of a value", [&] { (void)on.broadcast(1, last).wait(); });
  none("all_gather", [&] { on.all_gather(data, blocks).wait(); });
  none("all_gather_v", [&] { on.all_gather_v(data, blocks, counts).wait(); });
  none("gather", [&] { on.gather(data, blocks, last).wait(); });
  none("gather_v", [&] { on.gather_v(data, blocks, counts, last).wait(); });
  none("scatter", [&] { on.scatter(blocks, data, 0).wait(); });
  none("scatter_v", [&] { on.scatter_v(blocks, data, counts, 0).wait(); });
  none("all_to_all", [&] { on.all_to_all(blocks, others).wait(); });
  none("all_to_all_v", [&] { on.all_to_all_v(blocks, counts, others, counts).wait(); });
  none("barrier", [&] { on.barrier().wait(); });
}

}  // namespace tutti_test
