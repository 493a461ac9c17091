// Sums the ranks' numbers on all ranks.
//
//   tutti-run -n 4 -- 01_hello        four processes
//   ./01_hello                        a world of one
#include <cstdio>
#include <tutti/tutti.hpp>

int main() try {
  auto world = tutti::init();
  const int sum = world.all_reduce(world.rank()).wait();
  std::printf("rank %d of %d: the ranks add up to %d\n", world.rank(), world.size(), sum);
} catch (const std::exception& e) {
  std::fprintf(stderr, "01_hello: %s\n", e.what());
  return 1;
}
