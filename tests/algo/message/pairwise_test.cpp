#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <tutti/algo/message/pairwise.hpp>
#include <tutti/bootstrap/threads.hpp>

#include <algo/parcels.hpp>

TEST_CASE("pairwise: every block comes to its place, equal or not, apart and in place") {
  parcels::check_all_to_all<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::pairwise_all_to_all(link, a); });
}

TEST_CASE("pairwise: an empty output where the input begins is not in place") {
  tutti::run_threads(2, [](auto& world) {
    const bool sends = world.rank() == 0;
    std::vector<int> data(100, sends ? 7 : 0);
    const std::span all{data}, none = all.first(0);
    const std::vector<std::size_t> out{0, sends ? 100U : 0U}, in{sends ? 0U : 100U, 0};
    world.all_to_all_v(sends ? all : none, out, sends ? none : all, in, {.via = tutti::algorithm::pairwise}).wait();
    if (data != std::vector<int>(100, 7)) throw std::runtime_error("not what was sent");
  });
}
