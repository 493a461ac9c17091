#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include <docs/api.hpp>

// Runs the collectives of docs/api.md.

TEST_CASE("docs/api.md: its collectives do what it says") {
  tutti::run_threads(3, [](docs_api::world_t& world) {
    const auto n = static_cast<std::size_t>(world.rank()) + 1;
    if (docs_api::of_any_length(world, std::vector<double>(n, 1.0 * world.rank())) !=
        std::vector<double>{0, 1, 1, 2, 2, 2})
      throw std::logic_error("one behind the other");
    docs_api::by_each_reduction(world);
  });
}
