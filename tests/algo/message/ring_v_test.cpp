#include <doctest/doctest.h>

#include <tutti/algo/message/ring_v.hpp>

#include <algo/parcels.hpp>

TEST_CASE("ring_v: block b is folded from rank b + 1 on, whatever its length, and gathered beside gaps") {
  parcels::check_uneven<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::ring_reduce_scatter_v(link, a); },
      [](auto link, auto&, const auto& a) { return tutti::algo::ring_all_gather_v(link, a); },
      [](int block, int size) { return (block + 1) % size; });
}
