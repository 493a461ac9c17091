#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/backend/concept.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::expect;
using ranks::world;
using tutti::errc;
using tutti::nothrow;

static_assert(!std::is_copy_constructible_v<world> && !std::is_copy_assignable_v<world>);
static_assert(std::is_nothrow_move_constructible_v<world> && std::is_nothrow_move_assignable_v<world>);
static_assert(tutti::backend<tutti::threads> && tutti::supports<tutti::threads, tutti::all_reduce_args> &&
              tutti::supports<tutti::threads, tutti::recv_args>);
static_assert(!tutti::supports<tutti::threads, int>);

template <class Range>
concept reducible = requires(world& w, Range&& r) { w.all_reduce(std::forward<Range>(r)); };
static_assert(reducible<std::vector<float>&> && reducible<std::span<float>> && reducible<std::array<int, 3>&>);
static_assert(reducible<int (&)[3]> && reducible<double>);
static_assert(!reducible<const std::vector<float>&> && !reducible<std::vector<float>> &&
              !reducible<std::span<const int>>);
static_assert(!reducible<std::vector<bool>&> && !reducible<std::vector<std::string>&> && !reducible<std::string*>);

static_assert(!std::is_copy_constructible_v<tutti::mapped_array<int>> &&
              std::is_nothrow_move_constructible_v<tutti::mapped_array<int>>);

TEST_CASE("communicator: a world of one does everything by itself") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  CHECK(alone.rank() == 0);
  CHECK(alone.size() == 1);
  std::vector<int> a{1, 2, 3}, b(3);
  alone.barrier().wait();
  alone.all_reduce(a, b, tutti::mean).wait();
  CHECK(b == a);
  alone.broadcast(a, 0).wait();
  alone.all_gather(a, b).wait();
  CHECK(b == a);
  b.assign(3, 0);
  alone.reduce_scatter(a, b).wait();
  CHECK(b == a);
  std::string text = "kept";
  alone.broadcast(text, 0).wait();
  CHECK(text == "kept");
  CHECK(alone.all_reduce(2.5f).wait() == 2.5f);
  CHECK(alone.broadcast(std::int64_t{7}, 0).wait() == 7);
  auto group = alone.split(3, 1);
  CHECK(group.size() == 1);
  alone.abort();
  CHECK(nothrow(alone.all_reduce(a)).wait().code == errc::aborted);
  CHECK(nothrow(group.barrier()).wait().code == errc::aborted);
}

TEST_CASE("communicator: every kind of range") {
  tutti::run_threads(2, [](auto& w) {
    int raw[3] = {1, 2, 3};
    w.all_reduce(raw).wait();
    expect(raw[2] == 6, "an array of C");
    std::array<double, 2> fixed{1, 2};
    w.all_reduce(fixed).wait();
    expect(fixed[1] == 4, "std::array");
    const std::vector<int> constant{5, 6};
    std::vector<int> out(2);
    w.all_reduce(constant, out).wait();
    expect(out[1] == 12, "a constant input");
    w.all_reduce(std::span<const int>{constant}, std::span{out}, tutti::max).wait();
    expect(out[1] == 6, "spans");
    int one = w.rank();
    w.all_reduce(std::span{&one, 1}).wait();
    expect(one == 1, "a span of one");
    std::string text(w.rank() == 0 ? "from 0" : "?");
    w.broadcast(std::span{text}.first(1), 0).wait();
    expect(text[0] == 'f', "a span of a string");
  });
}

TEST_CASE("communicator: what was moved from can be destroyed and assigned to") {
  tutti::run_threads(2, [](auto& given) {
    world first = std::move(given);
    first.barrier().wait();
    world second = std::move(first);
    second.barrier().wait();
    first = std::move(second);
    first.barrier().wait();
    world& itself = first;
    first = std::move(itself);
    first.barrier().wait();
    given = std::move(first);
    given.barrier().wait();
    tutti::op a = given.barrier();
    tutti::op b = std::move(a);
    a = given.barrier();
    b.wait();
    a.wait();
  });
}

TEST_CASE("communicator: assigning over one closes it") {
  const auto left = std::make_shared<tutti::threads_hub>(2), right = std::make_shared<tutti::threads_hub>(2);
  const auto part = [&](int rank) {
    auto w = tutti::join(left, rank);
    w.barrier().wait();
    w = tutti::join(right, rank);
    w.barrier().wait();
  };
  std::thread other{part, 1};
  part(0);
  other.join();
}

TEST_CASE("communicator: a handle outlives it, and so does its buffer") {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  std::vector<int> v(10);
  std::vector<tutti::op> kept;
  {
    auto w = tutti::join(hub, 0);
    kept.push_back(w.all_reduce(v));
  }
  CHECK(kept.front().done() == false);
  CHECK(nothrow(std::move(kept.front())).wait().code == errc::aborted);
}

TEST_CASE("communicator: a handle of a call that ended while it was issued outlives it, on any thread") {
  std::atomic<bool> posted{false};
  tutti::run_threads(2, [&](auto& given) {
    std::optional<tutti::op> kept;
    {
      auto w = std::move(given);
      for (int i = 0; i < 3; ++i) w.barrier().wait();
      if (w.rank() == 1) {
        tutti::op mine = w.barrier();
        posted = true;
        mine.wait();
      } else {
        while (!posted) std::this_thread::yield();
        kept = w.barrier();
        expect(kept->done(), "ended at once");
      }
    }
    if (kept) std::thread{[&] { kept->wait(); }}.join();
  });
}

TEST_CASE("communicator: memory that all ranks map") {
  tutti::run_threads(3, [](auto& w) {
    auto data = w.template allocate<float>(100000);
    expect(data.size() == 100000 && data[99999] == 0, "zeroed");
    for (float& x : data) x = static_cast<float>(w.rank());
    w.all_reduce(data.span()).wait();
    for (const float x : data) expect(x == 3, "the sum");
    auto moved = std::move(data);
    expect(data.size() == 0 && data.data() == nullptr && moved[5] == 3, "moved");  // NOLINT: what is left behind
    const auto none = w.template allocate<double>(0);
    expect(none.size() == 0, "nothing");
    const auto refused = [&](std::size_t count) {
      try {
        (void)w.template allocate<char>(count);
      } catch (const tutti::usage_error&) {
        return true;
      }
      return false;
    };
    expect(refused(~std::size_t{0}) && refused(~std::size_t{0} / 2 + 1), "more than there is address space");
  });
}

TEST_CASE("communicator: an array of mapped memory keeps its world together") {
  tutti::run_threads(2, [](auto& given) {
    tutti::mapped_array<int> array;
    {
      const world w = std::move(given);
      array = w.rank() == 0 ? const_cast<world&>(w).allocate<int>(10) : tutti::mapped_array<int>{};
    }
    if (array.size() != 0) array[9] = 1;
  });
}

TEST_CASE("communicator: groups outlive their parent") {
  tutti::run_threads(4, [](auto& given) {
    std::vector<world> groups;
    {
      world w = std::move(given);
      groups.push_back(w.split(w.rank() % 2));
      groups.push_back(groups.front().split(0, -w.rank()));
    }
    for (auto& g : groups) {
      std::vector<int> v(1000, 1);
      g.all_reduce(v).wait();
      expect(v == std::vector<int>(1000, 2), "another sum");
    }
    groups.erase(groups.begin());
    groups.front().barrier().wait();
  });
}

TEST_CASE("communicator: distinct groups may be used from distinct threads") {
  tutti::run_threads(2, [](auto& w) {
    auto a = w.split(0), b = w.split(0);
    const auto work = [](world& mine) {
      for (int i = 0; i < 300; ++i) {
        std::vector<int> v(static_cast<std::size_t>(i) * 40 + 1, 1);
        mine.all_reduce(v, tutti::sum, {.via = i % 3 == 0 ? tutti::algorithm::ring : tutti::algorithm::automatic})
            .wait();
        expect(v.back() == 2, "another sum");
      }
    };
    std::exception_ptr failed;
    std::thread other{[&] {
      try {
        work(b);
      } catch (...) {
        failed = std::current_exception();
        b.abort();
      }
    }};
    std::exception_ptr mine;
    try {
      work(a);
    } catch (...) {
      mine = std::current_exception();
      a.abort();
    }
    other.join();
    if (failed) std::rethrow_exception(failed);
    if (mine) std::rethrow_exception(mine);
  });
}

TEST_CASE("communicator: timeouts belong to the communicator and to its groups") {
  auto w = tutti::join(std::make_shared<tutti::threads_hub>(1), 0, std::chrono::seconds(7));
  CHECK(w.timeout() == std::chrono::seconds(7));
  w.timeout(std::chrono::hours(1));
  CHECK(w.timeout() == std::chrono::hours(1));
  CHECK(w.split(0).timeout() == std::chrono::hours(1));
  w.timeout(tutti::duration::max());
  w.barrier().wait();
  w.barrier({.timeout = tutti::duration::max()}).wait();
}

TEST_CASE("communicator: a split that meets another call is told as a split, whatever it gathers") {
  struct as_long_as_an_entry {
    std::array<char, 20> bytes;
  };
  const auto barrier = [](world& w) { w.barrier().wait(); };
  const auto gather = [](world& w) {
    const std::array<as_long_as_an_entry, 1> mine{};
    std::array<as_long_as_an_entry, 2> all;
    w.all_gather(mine, all).wait();
  };
  for (const auto& other : std::initializer_list<std::function<void(world&)>>{barrier, gather}) {
    ranks::collected<std::string> told(2);
    tutti::run_threads(2, [&](world& w) {
      w.barrier().wait();
      try {
        if (w.rank() == 1)
          other(w);
        else
          (void)w.split(0);
      } catch (const tutti::error& e) {
        told[w.rank()] = e.what();
      }
    });
    CAPTURE(told[0]);
    CAPTURE(told[1]);
    CHECK(told[0].starts_with("split #2 (communicator_test.cpp:"));
    CHECK(ranks::contains(told[1], "split #2"));
    CHECK(ranks::contains(told[1], "called"));
  }
}

}  // namespace
