// Ranks as processes of one program that needs no launcher, as torch.multiprocessing.spawn starts them: each runs this
// program again up to the call of spawn(), and there the function.
//
//   ./08_spawn          one rank for each core
//   ./08_spawn 8        eight
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <tutti/bootstrap/spawn.hpp>
#include <tutti/tutti.hpp>

int main(int argc, char** argv) try {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const double scale = 0.5;  // every rank comes by here, and has its own

  tutti::spawn(ranks, [&](tutti::communicator<>& world) {
    const double sum = world.all_reduce(scale * world.rank()).wait();
    if (world.rank() == 0) std::printf("sum over %d processes: %.1f\n", world.size(), sum);
  });
  std::printf("all ranks have ended\n");  // printed once: a rank ends inside spawn()
} catch (const std::exception& e) {
  std::fprintf(stderr, "08_spawn: %s\n", e.what());
  return 1;
}
