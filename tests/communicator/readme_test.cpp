#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include <docs/README.hpp>

// What README.md shows of collectives, run.

TEST_CASE("readme: its collectives do what it says") {
  tutti::run_threads(3, [](docs_readme::world_t& world) {
    const auto n = static_cast<std::size_t>(world.rank()) + 1;
    if (docs_readme::of_any_length(world, std::vector<double>(n, 1.0 * world.rank())) !=
        std::vector<double>{0, 1, 1, 2, 2, 2})
      throw std::logic_error("one behind the other");
    docs_readme::by_each_reduction(world);
  });
}
