// Two collectives in flight at once. Issuing starts them, in the same order on all ranks; awaiting only collects them.
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

  // The braces issue them from left to right on every rank, by whatever compiler its program was made.
  co_await tutti::when_all(std::tuple{world.all_reduce(gradient, tutti::mean), world.all_reduce(loss, tutti::max)});

  // The other style of errors: a status instead of an exception.
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
