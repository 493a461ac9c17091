// Ranks as threads of one process, as with torch's nn.DataParallel. Every rank computes on its share of one batch, and
// the results are averaged within the process.
//
//   ./03_threads
#include <cstdio>
#include <numeric>
#include <tutti/tutti.hpp>
#include <vector>

int main() try {
  std::vector<double> batch(10'000);
  std::iota(batch.begin(), batch.end(), 1.0);

  tutti::run_threads(4, [&](tutti::communicator<tutti::threads>& world) {
    const std::size_t share = batch.size() / static_cast<std::size_t>(world.size());
    const auto mine = std::span{batch}.subspan(share * static_cast<std::size_t>(world.rank()), share);
    const double local = std::accumulate(mine.begin(), mine.end(), 0.0) / static_cast<double>(share);

    const double mean = world.all_reduce(local, tutti::mean).wait();
    if (world.rank() == 0) std::printf("mean over %d threads: %.1f\n", world.size(), mean);
  });
} catch (const std::exception& e) {
  std::fprintf(stderr, "03_threads: %s\n", e.what());
  return 1;
}
