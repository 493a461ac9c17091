// One rank that counts what its collective calls allocate.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

#include <communicator/without_allocating.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>

#include "process/programs/options.hpp"

int main(int argc, char** argv) try {
  const tutti_test::words words{argc, argv};
  auto world = tutti::init(tutti_test::options_from(words));
  if (words.has("domain")) {  // ranks that believe to be alone take long to meet: what has ways of its own there
    std::vector<float> v(1024);
    const auto none = [&](const char* what, auto call) {
      tutti_test::expect_none(world, what, v.size() * sizeof(float), [&] {
        call();
        world.barrier().wait();
      });
    };
    none("all_reduce", [&] { world.all_reduce(v).wait(); });
    none("reduce", [&] { world.reduce(v, 0).wait(); });
    none("broadcast", [&] { world.broadcast(v, 2).wait(); });
  } else {
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{4} << 10, std::size_t{600} << 10})
      tutti_test::expect_none_of_any(world, bytes, [&] { world.barrier().wait(); });
  }
  std::printf("all well\n");
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
