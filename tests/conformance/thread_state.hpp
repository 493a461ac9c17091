#pragma once
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/half.hpp>
#include <tutti/core/layout.hpp>

#include <conformance/memory.hpp>
#include <conformance/report.hpp>

#include <support/thread_state.hpp>

namespace conformance {

/// Every collective, and a message, with `count` elements a block, twice: begun and waited for at once. After each the
/// calling thread is as it was.
template <class T, class World, class Op>
void check_thread_state(session<World>& s, std::size_t count, Op with) {
  const auto size = static_cast<std::size_t>(s.world.size()), mine = static_cast<std::size_t>(s.world.rank());
  const auto room = own_memory.take(2 * size * count * sizeof(T) + 1);
  auto* const data = reinterpret_cast<T*>(room.get());
  std::fill_n(data, 2 * size * count, T(1));
  const std::span<T> all{data, size * count}, one = all.subspan(mine * count, count),
                                              apart{data + size * count, size * count};
  const int root = s.world.size() - 1;
  constexpr int strange = 4242;  // an errno that nobody else sets
  const auto after = [&](const char* collective, auto call) {
    for (int turn = 0; turn < 2; ++turn) {
      errno = strange;
      const tutti_test::thread_state before;
      call();
      const tutti_test::thread_state now;
      const std::string changed = now.changed_since(before);
      which c = s.name(collective, count, type_name<T>());
      c.note = tutti::name(Op::kind);
      expect(changed.empty(), c, "left behind in the thread: " + changed);
    }
  };
  after("barrier", [&] { s.world.barrier().wait(); });
  after("broadcast", [&] { s.world.broadcast(one, root).wait(); });
  after("all_gather", [&] { s.world.all_gather(one, all).wait(); });
  after("gather", [&] { s.world.gather(one, apart, root).wait(); });
  after("scatter", [&] { s.world.scatter(apart, one, root).wait(); });
  after("all_to_all", [&] { s.world.all_to_all(all, apart).wait(); });
  const std::vector<std::size_t> counts(size, count);
  const tutti::layout blocks{counts}, blocks_of_root = s.world.rank() == root ? blocks : tutti::layout{};
  after("all_gather_v", [&] { s.world.all_gather_v(one, all, blocks).wait(); });
  after("gather_v", [&] { s.world.gather_v(one, apart, blocks_of_root, root).wait(); });
  after("scatter_v", [&] { s.world.scatter_v(apart, one, blocks_of_root, root).wait(); });
  after("all_to_all_v", [&] { s.world.all_to_all_v(all, blocks, apart, blocks).wait(); });
  if (size > 1)
    after("send and recv", [&] {
      auto sent = s.world.send(one, (s.world.rank() + 1) % s.world.size());
      s.world.recv(apart.first(count), (s.world.rank() + s.world.size() - 1) % s.world.size()).wait();
      sent.wait();
    });
  after("all_reduce", [&] { s.world.all_reduce(one, with).wait(); });
  after("all_reduce", [&] { s.world.all_reduce(all, apart, with).wait(); });
  after("reduce", [&] { s.world.reduce(one, root, with).wait(); });
  after("reduce_scatter", [&] { s.world.reduce_scatter(apart, one, with).wait(); });
  after("reduce_scatter_v", [&] { s.world.reduce_scatter_v(apart, one, blocks, with).wait(); });
  const std::vector<std::span<T>> list{one, apart.first(count)};
  after("all_reduce_coalesced", [&] { s.world.all_reduce_coalesced(list, with).wait(); });
  if constexpr (Op::kind != tutti::reduction_kind::mean) {
    after("scan", [&] { s.world.scan(one, with).wait(); });
    after("exclusive_scan", [&] { s.world.exclusive_scan(one, apart.first(count), with).wait(); });
  }
}

/// For each kind of kernel, where calls are small, take slots, are staged and stream past the caches.
template <class World>
void check_thread_state(session<World>& s) {
  for (const std::size_t count : s.counts({1, 100, 5000, 300000})) {
    check_thread_state<float>(s, count, tutti::sum);
    check_thread_state<tutti::bfloat16>(s, count, tutti::mean);
    check_thread_state<std::int8_t>(s, count, tutti::min);
  }
}

}  // namespace conformance
