#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/selection/sized.hpp>

#include <algo/lanes.hpp>

using tutti::layout;

TEST_CASE("sized: a situation is told the size of a message where all ranks know it and a choice depends on it") {
  std::vector<float> v(1000);
  constexpr tutti::algo::problem here{tutti::algo::connectivity::messages, 3, 0, 1};
  const std::vector<std::size_t> counts{1, 2, 997};
  const auto sized = [&](const auto& a) { return tutti::algo::sized(a, here).bytes; };
  CHECK(sized(tutti::all_reduce_args{lanes::in(v), lanes::out(v), {}}) == 4000);
  CHECK(sized(tutti::broadcast_args{lanes::out(v), 0}) == 4000);
  CHECK(sized(tutti::gather_args{lanes::in(v), {}, layout::of_equal(1000), 0}) == 12000);
  CHECK(sized(tutti::gather_args{lanes::in(v), {}, counts, 0}) == 0);
  CHECK(sized(tutti::scatter_args{{}, lanes::out(v), counts, 0}) == 0);
  CHECK(sized(tutti::all_gather_v_args{lanes::in(v), lanes::out(v), counts}) == 0);
}
