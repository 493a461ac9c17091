#include <doctest/doctest.h>

#include <cstddef>

#include <tutti/algo/selection/choose.hpp>
#include <tutti/algo/selection/last_choice.hpp>

namespace {

using tutti::algorithm;
using tutti::algo::connectivity;
using tutti::algo::problem;

TEST_CASE("last_choice: weighs for another collective, size or element, and for nothing else") {
  tutti::algo::last_choice last;
  int times = 0;
  const auto ask = [&]<class Args>(std::size_t bytes, std::size_t element, Args) {
    const problem here{connectivity::messages, 8, bytes, element};
    const algorithm via = last.of<Args>(here, [&] { return ++times, tutti::algo::select<Args>(here); });
    CHECK(via == tutti::algo::select<Args>(here));
    return times;
  };
  const tutti::all_reduce_args reduce;
  const tutti::broadcast_args broadcast;
  CHECK(ask(64, 4, reduce) == 1);
  CHECK(ask(64, 4, reduce) == 1);
  CHECK(ask(64, 4, broadcast) == 2);
  CHECK(ask(std::size_t{64} << 20, 4, broadcast) == 3);
  CHECK(ask(std::size_t{64} << 20, 8, broadcast) == 4);
  CHECK(ask(std::size_t{64} << 20, 8, reduce) == 5);
  CHECK(ask(64, 8, reduce) == 6);
  CHECK(ask(64, 8, reduce) == 6);
}

}  // namespace
