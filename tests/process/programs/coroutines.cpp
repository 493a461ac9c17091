// Coroutines of one rank, as `case` says. Says "all well" in the end, or what went wrong.
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <semaphore>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>

#include "process/programs/options.hpp"

namespace {

using world_type = tutti::communicator<>;

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("wrong: " + what);
}

/// Long and short sums in turns: they do not end in the order in which they are issued.
tutti::task<> sums(world_type& world, int rounds, std::size_t count) {
  for (int i = 0; i < rounds; ++i) {
    std::vector<int> some(i % 3 == 0 ? 1 : count, world.rank());
    co_await world.all_reduce(some);
    expect(some.back() == world.size() * (world.size() - 1) / 2, "a sum of " + std::to_string(some.size()));
    const int root = i % world.size();
    expect(co_await world.broadcast(world.rank() + i, root) == root + i, "a broadcast");
  }
}
/// Two at a time, of which the later one is awaited first.
tutti::task<> pairs(world_type& world, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    std::vector<float> one(40, 1.0F);
    auto first = world.all_reduce(one);
    auto second = world.all_reduce(i, tutti::max);
    expect(co_await std::move(second) == i, "the later one");
    co_await std::move(first);
    expect(one[39] == static_cast<float>(world.size()), "the one before it");
  }
}
tutti::task<> nested(world_type& world, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    co_await tutti::when_all(sums(world, 2, 300), pairs(world, 1));
    expect((co_await tutti::nothrow(world.barrier())).ok(), "a barrier");
  }
}

void side_by_side(world_type& world) {
  for (const std::size_t count : {10U, 3000U, 200000U}) {
    const int rounds = count > 10000 ? 3 : 30;
    tutti::sync_wait(world, tutti::when_all(sums(world, rounds, count), pairs(world, rounds), sums(world, rounds, 17),
                                            nested(world, rounds)));
    std::vector<tutti::task<>> list;
    for (std::size_t i = 0; i < 10; ++i) list.push_back(i % 2 == 0 ? sums(world, 3, count) : pairs(world, 3));
    tutti::sync_wait(world, tutti::when_all(std::move(list)));
    world.barrier().wait();
  }
}

/// A second world beside it, of the same ranks.
world_type second_world(const tutti_test::words& w) {
  auto options = tutti_test::options_from(w);
  options.rendezvous.insert(options.rendezvous.find('?'), "-second");
  return tutti::init(options);
}

void two_worlds(world_type& world, const tutti_test::words& w) {
  auto other = second_world(w);
  for (int i = 0; i < 20; ++i) {
    const auto [a, b] = tutti::sync_wait(
        world, tutti::when_all(std::tuple{world.all_reduce(1, tutti::sum), other.all_reduce(i, tutti::max)}));
    expect(a == world.size() && b == i, "sums of two worlds");
  }
  // In the other world one rank does not come: its deadline passes, whoever drives.
  other.timeout(std::chrono::milliseconds{300});
  const auto late = [](world_type& v) -> tutti::task<tutti::errc> {
    if (v.rank() == 1) co_return tutti::errc::timed_out;
    co_return (co_await tutti::nothrow(v.barrier())).code;
  };
  const auto [code] = tutti::sync_wait(world, tutti::when_all(late(other)));
  expect(code == tutti::errc::timed_out, "not timed out");
  world.barrier().wait();
}

/// What other libraries have: waits for a coroutine and drives nothing.
class blocking {
 public:
  struct promise_type {
    blocking get_return_object() { return blocking{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct tell {
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<promise_type> h) const noexcept { h.promise().ended.release(); }
        void await_resume() const noexcept {}
      };
      return tell{};
    }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { failure = std::current_exception(); }
    std::binary_semaphore ended{0};
    std::exception_ptr failure;
  };
  explicit blocking(std::coroutine_handle<promise_type> h) : handle_(h) {}
  blocking(const blocking&) = delete;
  blocking& operator=(const blocking&) = delete;
  ~blocking() { handle_.destroy(); }
  void wait() {
    handle_.promise().ended.acquire();
    if (handle_.promise().failure) std::rethrow_exception(handle_.promise().failure);
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

void nobody_drives(world_type& world) {
  world.barrier().wait();
  world.timeout(std::chrono::milliseconds{300});
  try {
    [](world_type& w) -> blocking {
      int never = 0;
      co_await w.recv(std::span{&never, 1}, (w.rank() + 1) % w.size(), 1);
    }(world)
                             .wait();
    throw std::runtime_error("a message came");
  } catch (const tutti::error& e) {
    expect(e.kind() == tutti::errc::timed_out, e.what());
  }
}

/// Coroutines that split one communicator side by side, and use what they get.
void splits(world_type& world) {
  const auto one = [](world_type& w, int colors, int rounds) -> tutti::task<> {
    std::vector<world_type> groups;
    for (int i = 0; i < rounds; ++i) groups.push_back(co_await w.split_async(w.rank() % colors, -w.rank()));
    for (world_type& group : groups) {
      const int sum = co_await group.all_reduce(w.rank());
      int expected = 0;
      for (int r = w.rank() % colors; r < w.size(); r += colors) expected += r;
      expect(sum == expected, "a sum in a group");
      expect(group.world_rank(group.size() - 1) == w.rank() % colors, "the order of a group");
      co_await tutti::when_all(sums(group, 2, 100), pairs(group, 2));
    }
  };
  tutti::sync_wait(world, tutti::when_all(one(world, 1, 4), one(world, 2, 4), one(world, 1, 2)));
  auto half = world.split(world.rank() % 2);
  const auto too_early = [](world_type& of) -> tutti::task<std::string> {
    try {
      (void)co_await of.split_async(0);
    } catch (const tutti::usage_error& e) {
      co_return e.what();
    }
    co_return "";
  };
  const auto [whole, words] = tutti::sync_wait(world, tutti::when_all(world.split_async(0), too_early(half)));
  expect(whole.size() == world.size(), "the first one's");
  expect(words.find("another communicator of this world is being split") != std::string::npos, words);
}

/// Many small operations in flight: the time for each does not grow with their number.
void flood(world_type& world, int count) {
  const auto run = [&](int n) {
    std::vector<int> values(static_cast<std::size_t>(n), 1);
    std::vector<tutti::op> ops;
    ops.reserve(values.size());
    world.barrier().wait();
    const auto began = std::chrono::steady_clock::now();
    for (int& v : values) ops.push_back(world.all_reduce(std::span{&v, 1}));
    for (tutti::op& o : ops) o.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    for (const int v : values) expect(v == world.size(), "a sum");
    return took.count();
  };
  for (int n = count / 8; n <= count; n *= 2) {
    const double seconds = run(n);
    if (world.rank() == 0) std::printf("%d in %.3f s, %.2f us each\n", n, seconds, seconds / n * 1e6);
  }
}

/// Rank 1 stops after many operations, which the others are told by number.
void last_seen(world_type& world) {
  for (int i = 0; i < 1000; ++i) world.all_reduce(i).wait();
  world.timeout(std::chrono::milliseconds{500});
  if (world.rank() == 1) return;
  if (const tutti::status s = tutti::nothrow(world.barrier()).wait(); s.ok()) throw std::runtime_error("it came");
  try {
    world.barrier().wait();
  } catch (const tutti::error& e) {
    std::printf("told: %s\n", e.what());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const tutti_test::words w(argc, argv);
  auto world = tutti::init(tutti_test::options_from(w));
  const std::string which = w.text("case");
  if (which == "side_by_side") side_by_side(world);
  if (which == "two_worlds") two_worlds(world, w);
  if (which == "nobody_drives") nobody_drives(world);
  if (which == "flood") flood(world, w.number("count", 20000));
  if (which == "splits") splits(world);
  if (which == "last_seen") last_seen(world);
  std::puts("all well");
} catch (const std::exception& e) {
  std::printf("%s\n", e.what());
  return 1;
}
