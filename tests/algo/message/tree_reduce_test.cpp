#include <doctest/doctest.h>

#include <tutti/algo/message/tree_reduce.hpp>

#include <algo/partial_order.hpp>

TEST_CASE("tree_reduce: operands keep the order of ranks from the root on, and only the root's buffer changes") {
  partial_order::check_reduce<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::tree_reduce(link, a); },
      [](int root, int) { return root; });
}
