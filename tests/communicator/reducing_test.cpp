#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

TEST_CASE("reducing: a world of one scales its own operand") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  CHECK(world.all_reduce(21, tutti::premul_sum(2)).wait() == 42);
  const std::vector<float> in{1, 2, 3};
  std::vector<float> out(3);
  world.reduce_scatter(in, out, tutti::premul_sum(0.5)).wait();
  CHECK(out == std::vector<float>{0.5F, 1, 1.5F});
  world.scan(in, out, tutti::premul_sum(3)).wait();
  CHECK(out == std::vector<float>{3, 6, 9});
}

TEST_CASE("reducing: ranks that disagree about which one fail with a mismatch") {
  tutti::run_threads(2, [](ranks::world& world) {
    const std::string words = ranks::words_of<tutti::error>([&] {
      tutti::value_at<float> mine{1, world.rank()};
      if (world.rank() == 0)
        (void)world.all_reduce(mine, tutti::minloc, {.via = tutti::algorithm::direct}).wait();
      else
        (void)world.all_reduce(mine, tutti::maxloc, {.via = tutti::algorithm::direct}).wait();
    });
    ranks::expect(ranks::contains(words, "all_reduce"), words);
  });
}

}  // namespace
