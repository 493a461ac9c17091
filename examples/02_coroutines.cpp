// Two collectives in flight at once. A call starts its collective, in the same order on all ranks; co_await only waits.
//
//   tutti-run -n 4 -- 02_coroutines
#include <cstdio>
#include <tuple>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

tutti::task<> program(tutti::communicator<>& world) {
  std::vector<float> gradient(1 << 20, static_cast<float>(world.rank()));
  std::vector<double> loss(1, 0.5 * world.rank());

  // Braces evaluate from left to right with every compiler, so all ranks issue both in the same order.
  co_await tutti::when_all(std::tuple{world.all_reduce(gradient, tutti::mean), world.all_reduce(loss, tutti::max)});

  // nothrow() returns errors as a status instead of throwing them.
  const tutti::status outcome = co_await tutti::nothrow(world.barrier());
  if (world.rank() == 0)
    std::printf("mean gradient %.2f, largest loss %.2f, barrier %s\n", static_cast<double>(gradient.front()), loss[0],
                outcome.ok() ? "passed" : "failed");
}

}  // namespace

int main() try {
  auto world = tutti::init();
  tutti::sync_wait(world, program(world));
} catch (const std::exception& e) {
  std::fprintf(stderr, "02_coroutines: %s\n", e.what());
  return 1;
}
