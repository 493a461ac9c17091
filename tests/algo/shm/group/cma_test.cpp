#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/all_to_all.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/gather_scatter.hpp>
#include <tutti/algo/shm/group/cma.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/algo/shm/v.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;

/// The kernel copies between ranks, which here are of one process, and none maps what another did not allocate.
class cma_transport : public links::staging_transport {
 public:
  using staging_transport::staging_transport;
  [[nodiscard]] int process_of(int) const noexcept { return ::getpid(); }
  [[nodiscard]] double ranks_per_core() const noexcept { return 1; }  // a root may wait
};

constexpr std::size_t least = std::size_t{16} << 10, chunk = tutti::algo::detail::cma_chunk;

template <class Rank>
void use_cma(Rank& me) {
  (void)me.shm_group().choice_due(tutti::algo::retune_schedule::worth_choosing);  // as if everything had been chosen
  me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
  me.shm_group().set_cma({least, least});
}

/// What a rank has in its block.
std::uint8_t value(std::size_t round, int rank, std::size_t i) {
  return static_cast<std::uint8_t>(i * 7 + i / 253 + round * 31 + static_cast<std::size_t>(rank) * 101);
}

/// A buffer of this rank that begins at an odd place, in memory that others map or not, between two marks.
struct buffer {
  template <class Rank>
  buffer(Rank& me, std::size_t bytes, bool mapped) : own(mapped ? 0 : bytes + 3), size(bytes) {
    auto* p = mapped ? reinterpret_cast<std::uint8_t*>(me.link().allocate(bytes + 3)) : own.data();
    begin = p + 1;
    begin[-1] = begin[bytes] = 0xc5;
  }
  [[nodiscard]] std::span<std::uint8_t> span() const { return {begin, size}; }
  [[nodiscard]] bool intact() const { return begin[-1] == 0xc5 && begin[size] == 0xc5; }

  std::vector<std::uint8_t> own;
  std::uint8_t* begin;
  std::size_t size;
};

TEST_CASE("cma: a broadcast from and to buffers that are read by cma, mapped, or both, with two rounds") {
  if (!links::kernel_copies_here()) return;
  for (const int n : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<cma_transport>(n, [&](auto& me) {
      use_cma(me);
      std::size_t round = 0;
      for (const std::size_t bytes : {least - 1, least, chunk + 1, 2 * chunk + 12'345})
        for (unsigned mapped = 0; mapped < 4; ++mapped) {
          const int root = static_cast<int>(++round) % n;
          const buffer mine(me, bytes, (mapped >> (me.number() == root ? 0 : 1) & 1) != 0);
          for (std::size_t i = 0; i < bytes; ++i) mine.begin[i] = me.number() == root ? value(round, root, i) : 0xee;
          const std::uint64_t before = me.shm_group().step();
          me.run([&](auto l) {
            return tutti::algo::direct_broadcast(l, me.shm_group(),
                                                 tutti::broadcast_args{tutti::erase_type(mine.span()), root});
          });
          for (std::size_t i = 0; i < bytes; ++i)
            if (mine.begin[i] != value(round, root, i)) expect(false, "byte", i);
          expect(mine.intact(), "it wrote beside the buffer of", bytes);
          const bool direct = bytes >= least || (mapped & 1) != 0;
          expect(me.shm_group().step() - before == (direct ? 2 : 1), "the rounds of a broadcast of", bytes);
        }
    });
}

TEST_CASE("cma: an all_gather of blocks that are read by cma, mapped, in place, or too short, with two rounds") {
  if (!links::kernel_copies_here()) return;
  for (const int n : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<cma_transport>(n, [&](auto& me) {
      use_cma(me);
      std::size_t round = 0;
      for (const std::size_t bytes : {least - 1, least, chunk + 1})
        for (int kind = 0; kind < 4; ++kind) {
          ++round;
          const auto r = static_cast<std::size_t>(me.number());
          const bool maps = kind == 1 || (kind == 2 && me.number() == 0), in_place = kind == 3;
          const buffer out(me, bytes * static_cast<std::size_t>(n), maps), own(me, bytes, maps);
          const auto in = in_place ? out.span().subspan(r * bytes, bytes) : own.span();
          for (std::uint8_t& b : out.span()) b = 0xee;
          for (std::size_t i = 0; i < bytes; ++i) in[i] = value(round, me.number(), i);
          const std::uint64_t before = me.shm_group().step();
          me.run([&](auto l) {
            return tutti::algo::direct_all_gather(
                l, me.shm_group(),
                tutti::all_gather_args{tutti::erase_type(std::span<const std::uint8_t>(in)),
                                       tutti::erase_type(out.span())});
          });
          for (int p = 0; p < n; ++p)
            for (std::size_t i = 0; i < bytes; ++i)
              if (out.begin[static_cast<std::size_t>(p) * bytes + i] != value(round, p, i)) expect(false, "byte", i);
          expect(out.intact() && own.intact(), "it wrote beside the buffer of", bytes);
          if (bytes >= least) expect(me.shm_group().step() - before == 2, "the rounds of an all_gather of", bytes);
        }
    });
}

/// n blocks of `bytes`: block r holds what rank r of a sender has for a receiver.
void check_blocks(const buffer& out, std::size_t bytes, std::size_t round, int n, int receiver) {
  for (int p = 0; p < n; ++p)
    for (std::size_t i = 0; i < bytes; ++i)
      if (out.begin[static_cast<std::size_t>(p) * bytes + i] != value(round + static_cast<std::size_t>(receiver), p, i))
        expect(false, "byte", i);
  expect(out.intact(), "it wrote beside a buffer of", bytes);
}

TEST_CASE("cma: gather and scatter from and to buffers that are read by cma or mapped") {
  if (!links::kernel_copies_here()) return;
  for (const int n : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<cma_transport>(n, [&](auto& me) {
      use_cma(me);
      std::size_t round = 0;
      for (const std::size_t bytes : {least, 2 * chunk + 12'345})
        for (unsigned mapped = 0; mapped < 4; ++mapped) {
          const int root = static_cast<int>(++round) % n;
          const bool maps = (mapped >> (me.number() == root ? 0 : 1) & 1) != 0;
          const std::size_t all = bytes * static_cast<std::size_t>(n);
          const buffer one(me, bytes, maps), many(me, all, maps);
          const auto layout = tutti::layout::of_equal(bytes);
          for (std::size_t i = 0; i < bytes; ++i) one.begin[i] = value(round, me.number(), i);
          const std::uint64_t before = me.shm_group().step();
          me.run([&](auto l) {
            const auto out = me.number() == root ? tutti::erase_type(many.span()) : tutti::buffer{};
            return tutti::algo::direct_gather(
                l, me.shm_group(),
                tutti::gather_args{tutti::erase_type(std::span<const std::uint8_t>(one.span())), out, layout, root});
          });
          if (me.number() == root) check_blocks(many, bytes, round, n, 0);
          if (bytes > chunk) expect(me.shm_group().step() - before == 2, "the rounds of a gather of", bytes);

          for (int p = 0; p < n; ++p)
            for (std::size_t i = 0; i < bytes; ++i)
              many.begin[static_cast<std::size_t>(p) * bytes + i] = value(round, p, i);
          const std::uint64_t then = me.shm_group().step();
          me.run([&](auto l) {
            const auto in = me.number() == root ? tutti::erase_type(std::span<const std::uint8_t>(many.span()))
                                                : tutti::const_buffer{};
            return tutti::algo::direct_scatter(l, me.shm_group(),
                                               tutti::scatter_args{in, tutti::erase_type(one.span()), layout, root});
          });
          for (std::size_t i = 0; i < bytes; ++i)
            if (one.begin[i] != value(round, me.number(), i)) expect(false, "byte", i);
          expect(one.intact() && many.intact(), "it wrote beside a buffer of", bytes);
          expect(me.shm_group().step() - then == 2, "the rounds of a scatter of", bytes);
        }
    });
}

TEST_CASE("cma: all_to_all, equal blocks and others, and an all_gather of others") {
  if (!links::kernel_copies_here()) return;
  for (const int n : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<cma_transport>(n, [&](auto& me) {
      use_cma(me);
      std::size_t round = 0;
      for (const std::size_t bytes : {least, chunk + 4'321})
        for (int kind = 0; kind < 3; ++kind) {
          round += 10;
          const bool maps = kind == 1 || (kind == 2 && me.number() == 0);
          const std::size_t all = bytes * static_cast<std::size_t>(n);
          const buffer in(me, all, maps), out(me, all, maps);
          for (int p = 0; p < n; ++p)
            for (std::size_t i = 0; i < bytes; ++i)
              in.begin[static_cast<std::size_t>(p) * bytes + i] =
                  value(round + static_cast<std::size_t>(p), me.number(), i);
          const std::vector<std::size_t> counts(static_cast<std::size_t>(n), bytes);
          const auto exchange = [&](const tutti::layout& blocks) {
            for (std::uint8_t& b : out.span()) b = 0xee;
            const std::uint64_t before = me.shm_group().step();
            me.run([&](auto l) {
              return tutti::algo::direct_all_to_all(
                  l, me.shm_group(),
                  tutti::all_to_all_args{tutti::erase_type(std::span<const std::uint8_t>(in.span())),
                                         tutti::erase_type(out.span()), blocks, blocks});
            });
            check_blocks(out, bytes, round, n, me.number());
            if (bytes > chunk) expect(me.shm_group().step() - before == 2, "the rounds of an all_to_all of", bytes);
          };
          exchange(tutti::layout::of_equal(bytes));
          exchange(tutti::layout(counts));

          for (std::uint8_t& b : out.span()) b = 0xee;
          const std::uint64_t before = me.shm_group().step();
          me.run([&](auto l) {
            return tutti::algo::direct_all_gather_v(
                l, me.shm_group(),
                tutti::all_gather_v_args{tutti::erase_type(std::span<const std::uint8_t>(in.span().first(bytes))),
                                         tutti::erase_type(out.span()), tutti::layout(counts)});
          });
          check_blocks(out, bytes, round, n, 0);
          expect(me.shm_group().step() - before == 2, "the rounds of an all_gather_v of", bytes);
        }
    });
}

/// One rank says that its process is one that has no such memory.
class wrong_transport : public cma_transport {
 public:
  using cma_transport::cma_transport;
  [[nodiscard]] int process_of(int r) const noexcept { return rank() == 1 ? 1 << 30 : cma_transport::process_of(r); }
};

TEST_CASE("cma: a rank whose process is no more ends with the failure of the group, not with its own") {
  if (!links::kernel_copies_here()) return;
  std::vector<tutti::errc> kinds(2);
  std::barrier cma_thresholds{2};
  links::run<wrong_transport>(2, [&](auto& me) {
    use_cma(me);
    cma_thresholds.arrive_and_wait();
    const buffer mine(me, least, false);
    auto op = me.start([&](auto l) {
      return tutti::algo::direct_broadcast(l, me.shm_group(), tutti::broadcast_args{tutti::erase_type(mine.span()), 0});
    });
    // Rank 1 finds that there is no such process, and waits to be told why.
    if (me.number() == 0) me.abort();
    try {
      std::move(op).wait();
    } catch (const tutti::error& e) {
      kinds[static_cast<std::size_t>(me.number())] = e.kind();
    }
  });
  CHECK(kinds == std::vector<tutti::errc>(2, tutti::errc::aborted));
}

TEST_CASE("cma: nobody writes to a buffer any more of a rank that failed") {
  if (!links::kernel_copies_here()) return;
  constexpr std::size_t bytes = std::size_t{64} << 20, share = bytes / 2;  // the root's, at the end
  std::barrier cma_thresholds{2}, ended{2};
  bool late = false;
  links::run<wrong_transport>(2, [&](auto& me) {
    use_cma(me);
    cma_thresholds.arrive_and_wait();
    const buffer mine(me, bytes, false);
    std::memset(mine.begin, me.number() == 0 ? 7 : 1, bytes);
    // Rank 1 copies nothing itself, and fails as soon as the root has begun.
    std::atomic<bool> over{false};
    std::thread watch;
    if (me.number() == 1)
      watch = std::thread([&] {
        while (!over && std::atomic_ref(mine.begin[share]).load() == 1) std::this_thread::yield();
        me.abort();
      });
    auto op = me.start([&](auto l) {
      return tutti::algo::direct_broadcast(l, me.shm_group(), tutti::broadcast_args{tutti::erase_type(mine.span()), 0});
    });
    const bool failed = !tutti::nothrow(std::move(op)).wait().ok();
    const auto tail = mine.span().last(4096);  // what the root would write last
    std::memset(tail.data(), 0x55, tail.size());
    over = true;
    ended.arrive_and_wait();
    if (watch.joinable()) watch.join();
    expect(failed, "an operation that was aborted", me.number());
    if (me.number() == 1)
      for (const std::uint8_t b : tail) late = late || b != 0x55;
  });
  CHECK_FALSE(late);
}

}  // namespace
