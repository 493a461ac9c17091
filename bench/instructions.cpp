// Calls all_reduce on one float in a world of one rank, where nothing waits, so that two runs differ by the
// instructions of their calls alone; see instructions.py.
//
//   bench-instructions CALLS
#include <charconv>
#include <cstring>
#include <span>

#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  int calls = 0;
  if (argc == 2) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), calls);
  auto world = tutti::init();
  float value = 1;
  for (int i = 0; i < calls; ++i) world.all_reduce(std::span{&value, 1}).wait();
  world.close();
}
