#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/deadline.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

template <class T, class World>
void check_broadcast(session<World>& s, std::size_t count, int root, const ways& candidates) {
  for (const auto via : s.template algorithms<tutti::broadcast_args>(candidates, sizeof(T))) {
    which c = s.name("broadcast", count, type_name<T>(), via);
    c.note = "root " + std::to_string(root);
    const std::uint64_t salt = s.salt();
    const table<T> wanted{count, [&](std::size_t i) { return element_of<T>(i, salt); }};
    const guarded<T> data = s.world.rank() == root ? guarded<T>(count, wanted) : guarded<T>(count);
    s.world.broadcast(data.span(), root, {.via = via}).wait();
    expect_equal(c, data.span(), wanted);
    expect(data.intact(), c, "something beside the buffer was written");
  }
}

/// `count` is that of one block.
template <class T, class World>
void check_all_gather(session<World>& s, std::size_t count, const ways& candidates) {
  const auto mine = static_cast<std::size_t>(s.world.rank());
  for (const auto via : s.template algorithms<tutti::all_gather_args>(candidates, sizeof(T)))
    for (const bool in_place : {true, false}) {
      which c = s.name("all_gather", count, type_name<T>(), via);
      c.note = in_place ? "in place" : "out of place";
      const std::uint64_t salt = s.salt();
      const table<T> wanted{count * s.size(), [&](std::size_t i) { return element_of<T>(i, salt); }};
      const guarded<T> out(count * s.size());
      const table<T> contributed{count, [&](std::size_t i) { return element_of<T>(mine * count + i, salt); }};
      const guarded<T> in(count, contributed);
      const std::span<T> own = out.span().subspan(mine * count, count);
      if (in_place) contributed.fill(own);
      s.world.all_gather(in_place ? own : in.span(), out.span(), {.via = via}).wait();
      expect_equal(c, out.span(), wanted);
      expect(in.intact() && out.intact(), c, "something beside the buffers was written");
    }
}

template <class World>
void check_string(session<World>& s, std::size_t bytes, int root) {
  which c = s.name("broadcast", bytes, "char of a string");
  c.note = "root " + std::to_string(root);
  const std::uint64_t salt = s.salt();
  std::string wanted(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i) wanted[i] = static_cast<char>(mix(salt + i));
  std::string text = s.world.rank() == root ? wanted : std::string(static_cast<std::size_t>(s.world.rank()) * 5, 'x');
  s.world.broadcast(text, root).wait();
  expect(text == wanted, c, "the text is another, or of another length: " + std::to_string(text.size()));
}

/// No rank gets out before the last has come in; the clock is one for the whole machine.
template <class World>
void check_barrier(session<World>& s) {
  for (int late = 0; late < s.world.size(); ++late) {
    which c = s.name("barrier");
    c.note = "rank " + std::to_string(late) + " late";
    if (s.world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const auto ticks = [] { return static_cast<std::int64_t>(tutti::clock::now().time_since_epoch().count()); };
    const std::int64_t came = ticks();
    s.world.barrier().wait();
    const std::int64_t went = ticks();
    std::vector<std::int64_t> all(s.size());
    s.world.all_gather(std::span{&came, 1}, all).wait();
    for (std::size_t r = 0; r < all.size(); ++r)
      expect(all[r] <= went, c, "left before rank " + std::to_string(r) + " had called it");
  }
}

template <class World>
void check_movement(session<World>& s) {
  using enum tutti::algorithm;
  const ways to_all{automatic, direct, tree, chain, hierarchical},
      from_all{automatic, direct, ring, bruck, hierarchical};
  check_barrier(s);
  for (int i = 0; i < 20; ++i) s.world.barrier().wait();
  for (const std::size_t count : s.counts(every_count)) {
    for_each(every_dtype{}, [&]<class T>() {
      check_broadcast<T>(s, count, static_cast<int>(mix(s.salt()) % s.size()), {automatic});
      check_all_gather<T>(s, count, {automatic});
    });
    for (int root = 0; root < s.world.size(); ++root) check_broadcast<int>(s, count, root, to_all);
    for_each(types<std::uint8_t, odd, float>{}, [&]<class T>() {
      check_broadcast<T>(s, count, s.world.size() - 1, to_all);
      check_all_gather<T>(s, count, from_all);
    });
  }
  check_broadcast<std::uint64_t>(s, 300000, s.world.size() - 1, to_all);  // several slots, several segments
  check_all_gather<std::uint64_t>(s, 100000, from_all);
  for (const std::size_t count : s.counts({1, 100})) {
    check_broadcast<page>(s, count, 0, to_all);
    check_all_gather<page>(s, count, from_all);
  }
  for (int root = 0; root < s.world.size(); ++root)
    for (const std::size_t bytes : s.counts({0, 1, 13, 65536, 65537, 1000000}))
      if (bytes < 65537 || root == 0) check_string(s, bytes, root);
}

}  // namespace conformance
