// A trainer without a model, for the tests of what can be seen from outside: `passes` passes over gradients in three
// buckets. Rank `who` comes `late` (5) ms late with the second one.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>
#include <tutti/grad/reducer.hpp>

#include "process/programs/options.hpp"

int main(int argc, char** argv) {
  const tutti_test::words w{argc, argv};
  try {
    auto world = tutti::init(tutti_test::options_from(w));
    const bool odd = world.rank() == w.number("who", -1);
    const std::vector<tutti::grad::parameter_shape> shapes(3, {"w", 20000});
    tutti::grad::reducer reducer{world, shapes, {.limits = {80000, 80000}}};
    for (int i = 0; i < w.number("passes", 20); ++i) {
      auto pass = reducer.begin();
      for (const std::size_t parameter : {2U, 1U, 0U}) {
        std::this_thread::sleep_for(std::chrono::microseconds{200});
        if (odd && parameter == 1) std::this_thread::sleep_for(std::chrono::milliseconds{w.number("late", 5)});
        pass.ready(parameter);
      }
      tutti::sync_wait(world, pass.finish());
      world.barrier().wait();
    }
    return 0;
  } catch (const std::exception& e) {
    std::printf("ended: %s\n", e.what());
    return 1;
  }
}
