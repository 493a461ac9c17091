// A stream of collectives without end. Says "streaming" once it flows, and after a failure what it was and when, on the
// clock that all processes of the machine share; its exit code is then `status`.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/tls.hpp>

#include "process/programs/options.hpp"

namespace {

template <class World>
void run(World& world) {
  constexpr std::size_t most = 1 << 18;
  std::vector<float> data(most, 1.0F), out(most * static_cast<std::size_t>(world.size()));
  unsigned step = 0;
  for (;; ++step) {
    const std::size_t count = std::size_t{1} << (step * 7 % 19);
    const auto some = std::span{data}.first(count);
    switch (step % 5) {
      case 0:
        world.all_reduce(some, tutti::max).wait();
        break;
      case 1:
        world.broadcast(some, static_cast<int>(step / 5) % world.size()).wait();
        break;
      case 2:
        world.all_gather(some, std::span{out}.first(count * static_cast<std::size_t>(world.size()))).wait();
        break;
      case 3:
        world.barrier().wait();
        break;
      default: {
        auto first = world.all_reduce(some, tutti::max);
        auto second = world.broadcast(std::span{out}.first(count), 0);
        std::move(first).wait();
        std::move(second).wait();
      }
    }
    if (step == 20) {
      std::puts("streaming");
      std::fflush(stdout);
    }
  }
}

/// Rank 1 calls something else than the others.
template <class World>
void call_otherwise(World& world) {
  std::vector<float> data(4096);
  world.barrier().wait();
  if (world.rank() == 1)
    world.broadcast(std::span{data}.first(1024), 0).wait();
  else
    world.all_reduce(data).wait();
}

/// All ranks have called, and none has waited for another, when the first ends.
template <class World>
void differ_at_the_end(World& world) {
  auto group = world.split(0);
  std::vector<float> data(1);
  group.barrier().wait();
  group.broadcast(data, group.rank()).wait();
  world.barrier().wait();
}

long open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

/// Works without waiting for anybody.
template <class World>
void compute(World& world, std::chrono::milliseconds time) {
  for (const auto until = tutti::clock::now() + time; tutti::clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    world.engine().poll();
  }
}

/// Rank 1, with rank 0 in a group, waits long for rank 2, which has used its own group, of operations with the same
/// numbers. Then all wait for rank 2, through each other.
template <class World>
void wait_for_other_groups(World& world) {
  auto pair = world.split(world.rank() / 2);
  std::vector<float> some(1000), more(2000), all(100000);
  world.all_reduce(all, tutti::sum, {.via = tutti::algorithm::ring}).wait();
  const long before = open_descriptors();
  if (world.rank() >= 2) pair.all_reduce(more).wait();
  if (world.rank() == 2) compute(world, std::chrono::milliseconds{600});
  if (world.rank() == 2) world.send(some, 1).wait();
  if (world.rank() == 1) world.recv(some, 2).wait();
  if (world.rank() < 2) pair.all_reduce(some).wait();
  const long between = open_descriptors();
  if (world.rank() == 2) compute(world, std::chrono::milliseconds{600});
  world.all_reduce(all, tutti::sum, {.via = tutti::algorithm::ring}).wait();
  std::printf("all well, %ld and %ld descriptors more\n", between - before, open_descriptors() - between);
  std::fflush(stdout);
  world.barrier().wait();
}

/// Rank 1's reduction throws.
template <class World>
void throw_at_work(World& world) {
  std::vector<int> data(4096);
  world.barrier().wait();
  const int rank = world.rank();
  world
      .all_reduce(data,
                  [rank](int a, int b) {
                    if (rank == 1) throw 1;
                    return a + b;
                  })
      .wait();
  world.barrier().wait();  // for who needed nothing of rank 1's
}

/// Rank 1 kills itself in the middle of a fold of everybody's memory.
template <class World>
void die_at_work(World& world) {
  auto data = world.template allocate<float>(std::size_t{1} << 18);
  world.barrier().wait();
  std::puts("streaming");
  std::fflush(stdout);
  world.barrier().wait();
  const int rank = world.rank();
  world
      .all_reduce(data.span(),
                  [rank](float a, float b) {
                    if (rank == 1) std::raise(SIGKILL);
                    return a + b;
                  })
      .wait();
}

/// Rank 1 has a child that goes on without exec(), as a data loader does, made by fork() or behind its back.
template <class World>
void fork_if_first(World& world, bool unnoticed) {
  std::vector<int> one(1), all(static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) world.gather(one, all, r).wait();  // all connections exist from here on
  if (world.rank() != 1) return;
  const ::pid_t child = unnoticed ? static_cast<::pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : ::fork();
  if (child == 0) {
    ::close(STDOUT_FILENO);
    ::close(STDERR_FILENO);
    ::alarm(300);
    for (;;) ::pause();
  }
  std::printf("child %d\n", static_cast<int>(child));
}

/// The last rank fails by itself and tells the others, which end while it still cleans up.
template <class World>
int fail_late(World& world) {
  const int last = world.size() - 1;
  std::vector<::pid_t> all(static_cast<std::size_t>(world.size()));
  const ::pid_t mine = ::getpid();
  try {
    world.all_gather(std::span{&mine, 1}, all).wait();
    if (world.rank() != last) world.barrier().wait();
  } catch (const tutti::error&) {
    return 1;
  }
  world.abort();
  for (const ::pid_t other : std::span{all}.first(static_cast<std::size_t>(last)))
    while (::kill(other, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  return 42;
}

}  // namespace

int main(int argc, char** argv) {
  const tutti_test::words w{argc, argv};
  try {
    auto world = tutti::init(tutti_test::options_from(w));
    try {
      if (w.has("late")) return fail_late(world);
      if (w.has("child")) fork_if_first(world, w.number("child") == 2);
      if (w.has("at_work"))
        die_at_work(world);
      else if (w.has("odd"))
        call_otherwise(world);
      else if (w.has("last"))
        differ_at_the_end(world);
      else if (w.has("groups"))
        wait_for_other_groups(world);
      else if (w.has("throws"))
        throw_at_work(world);
      else
        run(world);
    } catch (const tutti::error& e) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      std::printf("ended at %lld kind %d peer %d %s\n",
                  static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()),
                  static_cast<int>(e.kind()), e.peer(), e.what());
      return w.number("status");
    }
  } catch (const std::exception& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  return 0;
}
