// One rank of the conformance suite, in a world that init() made.
#include <cstdio>
#include <exception>
#include <memory>

#include <conformance/collectives.hpp>
#include <conformance/memory.hpp>
#include <support/grid.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/tls.hpp>

#include "process/programs/options.hpp"

namespace {

int channels = 0;  // that were made in this process

std::unique_ptr<tutti::secure_channel> count_and_make(int socket, tutti::secure_channel::side end,
                                                      const tutti::wire::mac& key,
                                                      const tutti::wire::job_id& identity) noexcept {
  ++channels;
  return tutti::tls_channel::make(socket, end, key, identity);
}

}  // namespace

int main(int argc, char** argv) try {
  const tutti_test::words words{argc, argv};
  tutti::secure_channel_provider.store(&count_and_make);
  auto world = tutti::init(tutti_test::options_from(words));
  // Types and counts are looked at by threads and simulated ranks too: all of them in one world is enough here, and 6
  // and 7 ranks leave what is long to those.
  using conformance::grid;
  const int n = world.size();
  // Worlds of 2 to 9 ranks go through all reductions together, or those of the sizes that there are.
  const auto stride = static_cast<std::size_t>(words.number("stride", n == 3 ? 4 : 8));
  const grid how = n == 3 ? grid::full : n == 6 || n == 7 ? grid::light : grid::thin;
  if (words.has("mixed")) conformance::own_memory.mix(world);
  conformance::check_world(world, tutti_test::reduced() ? conformance::grid_of(n) : how,
                           tutti_test::reduction_stride(stride));
  conformance::own_memory = {};
  std::printf("all well on rank %d of %d\n%s of its connections are encrypted\n", world.rank(), world.size(),
              channels == 0 ? "none" : "all");
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
