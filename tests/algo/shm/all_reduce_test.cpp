#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::append;
using links::expect;
using links::staging_transport;
using links::word;
using tutti::threads_transport;

static_assert(tutti::mapped_transport<threads_transport> && tutti::mapped_transport<staging_transport>);

template <class Rank, class T, class Op>
void all_reduce(Rank& me, const std::vector<T>& in, std::vector<T>& out, Op with) {
  const auto erased = tutti::erase_type<T>(with);
  me.run([&](auto link) {
    return tutti::algo::direct_all_reduce(link, me.shm_group(),
                                          tutti::all_reduce_args{links::in(in), links::out(out), erased});
  });
}

// One round, several rounds, and several slots.
const std::vector<std::size_t> counts{0, 1, 3, 1000, 4097, 40000};

TEST_CASE_TEMPLATE("direct: operands are taken in the order of the ranks, wherever they are", T, threads_transport,
                   staging_transport) {
  for (const int size : tutti_test::grid<int>({2, 3, 5, 8}, {2, 5}))
    links::run<T>(size, [](auto& me) {
      for (const std::size_t count : counts) {
        std::vector<word> v(count, links::letter(me.number())), out(count);
        const std::vector<word> in = v;
        all_reduce(me, v, v, append{});
        all_reduce(me, in, out, append{});
        for (std::size_t i = 0; i < count; ++i)
          expect(v[i] == links::spelled(0, me.size()) && out[i] == v[i], "element", i);
        expect(in == std::vector<word>(count, links::letter(me.number())), "the input was changed");

        std::vector<word> all(count * static_cast<std::size_t>(me.size()), links::letter(me.number()));
        std::vector<word> mine(count);
        const auto with = tutti::erase_type<word>(append{});
        me.run([&](auto link) {
          return tutti::algo::direct_reduce_scatter(link, me.shm_group(),
                                                    tutti::reduce_scatter_args{links::in(all), links::out(mine), with});
        });
        for (const word& w : mine) expect(w == links::spelled(0, me.size()), "another order in reduce_scatter");
      }
    });
}

template <class T>
std::vector<T> noise(std::size_t count, int rank) {
  std::mt19937 g{static_cast<unsigned>(rank) + 17};
  std::uniform_real_distribution<float> d{-1000, 1000};
  std::vector<T> v(count);
  for (T& x : v) x = static_cast<T>(d(g) / 3);
  return v;
}

template <class T>
bool same_bits(const T& a, const T& b) {
  if constexpr (requires { a.bits; })
    return a.bits == b.bits;
  else
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

TEST_CASE_TEMPLATE("direct: the bits depend on neither size nor placement", T, float, double, tutti::float16,
                   tutti::bfloat16) {
  // The whole at once, then slices of every kind: each must be the slice of the whole.
  constexpr std::size_t count = 150000;
  struct slice {
    std::size_t from, count;
  };
  constexpr slice slices[] = {{0, 1}, {149999, 1}, {1, 100}, {77, 16000}, {1003, 33333}, {0, 149999}, {5, 70001}};
  std::vector<T> mapped, staged;  // what rank 1 got
  const auto check = [&](auto& me, std::vector<T>& whole) {
    for (const auto kind : {0, 1}) {
      const std::vector<T> in = noise<T>(count, me.number());
      const auto reduce = [&](const std::vector<T>& from, std::vector<T>& to) {
        if (kind == 0)
          all_reduce(me, from, to, tutti::sum);
        else
          all_reduce(me, from, to, tutti::mean);
      };
      std::vector<T> out(count);
      reduce(in, out);
      for (const slice s : slices) {
        const auto begin = in.begin() + static_cast<std::ptrdiff_t>(s.from);
        std::vector<T> chunk(begin, begin + static_cast<std::ptrdiff_t>(s.count));
        reduce(chunk, chunk);
        for (std::size_t i = 0; i < s.count; ++i)
          expect(same_bits(chunk[i], out[s.from + i]), "of the slice, element", i);
      }
      if (me.number() == 1 && kind == 0) whole = out;
    }
  };
  links::run<threads_transport>(3, [&](auto& me) { check(me, mapped); });
  links::run<staging_transport>(3, [&](auto& me) { check(me, staged); });
  std::size_t differences = 0;
  for (std::size_t i = 0; i < count; ++i) differences += !same_bits(mapped[i], staged[i]);
  CHECK(differences == 0);
}

TEST_CASE("direct: a barrier lets nobody out before all have come") {
  std::atomic<int> came{0};
  links::run(5, [&](auto& me) {
    for (int round = 1; round <= 200; ++round) {
      came.fetch_add(1);
      me.run([&](auto link) { return tutti::algo::direct_barrier(link, me.shm_group()); });
      expect(came.load() >= round * 5, "left barrier " + std::to_string(round) + " early");
    }
  });
}

// Rank 0 gives up while rank 1 is at work in its buffer: the buffer may not be handed back before rank 1 is done.
TEST_CASE("direct: an operation that fails takes its buffers back before it ends") {
  struct shared {
    std::atomic<int> at_work{0};
    std::atomic<bool> given_up{false}, ended{false}, too_early{false};
  };
  struct watching {
    shared* s;
    int rank;
    float operator()(float a, float b) const {
      if (rank == 1 && s->at_work.fetch_add(1) == 0) {
        while (!s->given_up) std::this_thread::yield();
        for (int i = 0; i < 100 && !s->ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (s->ended) s->too_early = true;
      }
      return a + b;
    }
  };
  const auto check = [](auto start) {
    shared s;
    links::run(2, [&](auto& me) {
      auto v = std::make_unique<std::vector<float>>(200000, 1.0f);
      std::vector<float> out(100000);
      const auto with = tutti::erase_type<float>(watching{&s, me.number()});
      tutti::op running = start(me, *v, out, with);
      std::thread stops;
      if (me.number() == 0)
        stops = std::thread{[&] {
          while (s.at_work == 0) std::this_thread::yield();
          me.abort();
          s.given_up = true;
        }};
      const auto code = tutti::nothrow(std::move(running)).wait().code;
      if (me.number() == 0) s.ended = true;
      v.reset();
      if (stops.joinable()) stops.join();
      // Rank 1 may have had all that it needed before it heard of it.
      if (me.number() == 0) expect(code == tutti::errc::aborted, "it did not fail");
    });
    CHECK_FALSE(s.too_early.load());
  };
  SUBCASE("all_reduce") {
    check([](auto& me, std::vector<float>& v, std::vector<float>&, const tutti::reduction& with) {
      return me.start([&](auto link) {
        return tutti::algo::direct_all_reduce(link, me.shm_group(),
                                              tutti::all_reduce_args{links::in(v), links::out(v), with});
      });
    });
  }
  SUBCASE("reduce_scatter") {
    check([](auto& me, std::vector<float>& v, std::vector<float>& out, const tutti::reduction& with) {
      return me.start([&](auto link) {
        return tutti::algo::direct_reduce_scatter(link, me.shm_group(),
                                                  tutti::reduce_scatter_args{links::in(v), links::out(out), with});
      });
    });
  }
}

/// Rank 1 counts as dead.
class mortal_transport : public threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] bool gone(int peer) const noexcept { return peer == 1; }
};

TEST_CASE("direct: an operation that fails does not wait for the dead") {
  std::atomic<bool> at_work{false}, ended{false};
  bool waited = false;
  struct dying {
    std::atomic<bool>*at_work, *ended;
    int rank;
    float operator()(float a, float b) const {
      if (rank == 1 && !at_work->exchange(true))
        while (!*ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return a + b;
    }
  };
  // As it is not dead, it still needs the buffer that rank 0 has been given back.
  std::vector<std::vector<float>> buffers(2, std::vector<float>(200000, 1.0f));
  links::run<mortal_transport>(2, [&](auto& me) {
    std::vector<float>& v = buffers[static_cast<std::size_t>(me.number())];
    const auto with = tutti::erase_type<float>(dying{&at_work, &ended, me.number()});
    tutti::op running = me.start([&](auto link) {
      return tutti::algo::direct_all_reduce(link, me.shm_group(),
                                            tutti::all_reduce_args{links::in(v), links::out(v), with});
    });
    if (me.number() == 0) {
      std::thread watch{[&] {
        while (!at_work) std::this_thread::yield();
        me.abort();
        // Only so that the test ends where it is waited for.
        for (int i = 0; i < 8000 && !ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        waited = !ended.exchange(true);
      }};
      expect(tutti::nothrow(std::move(running)).wait().code == tutti::errc::aborted, "it did not fail");
      ended = true;
      watch.join();
    } else {
      static_cast<void>(tutti::nothrow(std::move(running)).wait());
    }
  });
  CHECK_FALSE(waited);
}

}  // namespace
