#include <doctest/doctest.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/rank0_stream.hpp>

TEST_CASE("rank0_stream: what all ranks say is said once") {
  std::ostringstream said;
  tutti::run_threads(3, [&](tutti::communicator<tutti::threads>& world) {
    tutti::train::rank0_stream out{world, said};
    out << "loss " << 0.5 << " of " << world.size() << std::endl;
    if (out.good() != (world.rank() == 0)) throw std::runtime_error("good");
  });
  CHECK(said.str() == "loss 0.5 of 3\n");
}
