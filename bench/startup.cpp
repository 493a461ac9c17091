// Says when the first barrier of a world has ended; see startup.py.
#include <chrono>
#include <cstdio>
#include <exception>

#include <tutti/tutti.hpp>

int main() try {
  auto world = tutti::init();
  world.barrier().wait();
  using namespace std::chrono;
  const auto now = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  if (world.rank() == 0) std::printf("usable %lld\n", static_cast<long long>(now));
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench-startup: %s\n", e.what());
  return 1;
}
