// Joins a world as its words say, `times` times, in `tries` tries each, and says what came of it: a line for the world,
// or one for the error.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/tls.hpp>

#include "process/programs/options.hpp"

namespace {

// Descriptors that a program started from here would inherit: all that is not the caller's business is close-on-exec.
int inheritable_descriptors() {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const int number = std::atoi(entry.path().filename().c_str());
    const int flags = ::fcntl(number, F_GETFD);
    // Standard streams, and the number by which tutti-run tells who is alive.
    if (number > 2 && number < 1000 && flags >= 0 && (flags & FD_CLOEXEC) == 0) ++count;
  }
  return count;
}
int descriptors() {
  int count = 0;
  std::error_code none;  // without /proc
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) ++count;
  return count;
}

tutti::communicator<> join(const tutti::init_options& options, int tries) {
  for (int left = tries; left > 1; --left) try {
      return tutti::init(options);
    } catch (const tutti::error&) {
    }
  return tutti::init(options);
}

// A program that a rank starts, with the rank's own variables.
void tell_of_child(const tutti_test::words& w) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = self + " join=200000 transport=" + w.text("transport", "automatic");
  const int status = std::system(command.c_str());
  std::printf("the child ended with %d\n", WEXITSTATUS(status));
  const int alone = std::system((command + " rank=0 world=1 >&2").c_str());
  std::printf("the child that is a world of its own ended with %d\n", WEXITSTATUS(alone));
}

int run(const tutti_test::words& w, std::optional<int> rank = {}) {
  for (int i = 0; i < w.number("times", 1); ++i) {
    const auto began = tutti::clock::now();
    auto options = tutti_test::options_from(w);
    if (rank) options.rank = rank;
    auto world = join(options, w.number("tries", 1));
    const double ms = std::chrono::duration<double, std::milli>(tutti::clock::now() - began).count();
    world.barrier().wait();
    std::vector<int> one{1 << (world.rank() % 16)};
    world.all_reduce(one).wait();
    tutti::all_reduce_args some;
    some.in = {nullptr, 252, sizeof(int), tutti::dtype::i32};
    some.out = {nullptr, 252, sizeof(int), tutti::dtype::i32};
    std::printf(
        "joined rank %d of %d local %d of %d node %d sum %d inherit %d in %.2f ms, all_reduces 252 ints by %s\n",
        world.rank(), world.size(), world.local_rank(), world.local_size(), world.node_rank(), one[0],
        inheritable_descriptors(), ms, tutti::name(world.backend().chosen(some)));
    std::fflush(stdout);
    if (world.rank() == w.number("parent", -1)) tell_of_child(w);
    std::this_thread::sleep_for(std::chrono::milliseconds{w.number("hold")});
  }
  return 0;
}

int run_and_tell(const tutti_test::words& w, std::optional<int> rank = {}) {
  try {
    return run(w, rank);
  } catch (const tutti::error& e) {
    std::printf("error kind %d peer %d %s\n", static_cast<int>(e.kind()), e.peer(), e.what());
    return 1;
  } catch (const tutti::usage_error& e) {
    std::printf("usage %s\n", e.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const tutti_test::words w{argc, argv};
  std::this_thread::sleep_for(std::chrono::milliseconds{w.number("late")});
  const int before = descriptors();
  int status = 0;
  if (const int threads = w.number("threads"); threads > 0) {  // each takes itself for a rank
    std::vector<std::jthread> ranks;
    for (int r = 0; r < threads; ++r) ranks.emplace_back([&w, r] { static_cast<void>(run_and_tell(w, r)); });
  } else {
    status = run_and_tell(w);
  }
  if (descriptors() > before) {
    std::printf("left %d descriptors open\n", descriptors() - before);
    return 3;
  }
  return status;
}
