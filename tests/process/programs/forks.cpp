// A world one of whose ranks forks a child, which ends all that it inherited while the rank goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <tutti/async/progress_thread.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>

#include "process/programs/options.hpp"
#include "support/words.hpp"

int main(int argc, char** argv) try {
  std::optional world{tutti::init(tutti_test::options_from(tutti_test::words{argc, argv}))};
  const int n = world->size();
  std::optional group{world->split(world->rank() % 2)};
  std::optional array{world->allocate<float>(100000)};
  std::optional<tutti::progress_thread> thread;
  if (world->rank() < 2) thread.emplace(world->engine());  // one of them forks

  std::vector<int> late(1);
  std::optional<tutti::op> pending;
  if (world->rank() == 1) pending.emplace(world->recv(late, 0, 9));
  std::vector<int> large(300000, 1);
  std::optional under_way{world->all_reduce(large)};
  if (world->rank() == 1) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const auto refused = [](auto call) {
        return tutti_test::contains(tutti_test::complaint(call), "made by fork()");
      };
      if (!refused([&] { world->all_reduce(1).wait(); }) || !refused([&] { std::move(*pending).wait(); }) ||
          !refused([&] { (void)world->allocate<float>(5); }) || !refused([&] { (void)world->split(0); }))
        ::_exit(3);
      pending.reset();
      under_way.reset();
      thread.reset();
      group.reset();
      array.reset();
      world.reset();
      ::_exit(0);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0)
      throw std::runtime_error("the child ended with status " + std::to_string(status));
  }
  std::move(*under_way).wait();
  under_way.reset();
  if (world->rank() == 1) {
    world->send(late, 0, 8).wait();  // the child has gone
    std::move(*pending).wait();
  } else if (world->rank() == 0) {
    world->recv(late, 1, 8).wait();
    world->send(late, 1, 9).wait();
  }
  for (const int i : large)
    if (i != n) throw std::runtime_error("a wrong sum");
  for (int round = 0; round < 50; ++round) {
    if (group->all_reduce(1).wait() != group->size()) throw std::runtime_error("a wrong sum of a group");
    group = world->split(world->rank() % 2);  // in memory of the one before
    for (float& f : *array) f = 1;
    world->all_reduce(*array).wait();
    for (const float f : *array)
      if (f != static_cast<float>(n)) throw std::runtime_error("a wrong sum of an allocated array");
  }
  thread.reset();
  std::printf("all well on rank %d\n", world->rank());
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
