#include <doctest/doctest.h>

#include <tutti/algo/shm/v.hpp>

#include <algo/parcels.hpp>

TEST_CASE("shm v: blocks of any lengths are folded in rank order, and gathered beside gaps") {
  parcels::check_uneven<tutti::threads_transport>(
      [](auto link, auto& shm_group, const auto& a) {
        return tutti::algo::direct_reduce_scatter_v(link, shm_group, a);
      },
      [](auto link, auto& shm_group, const auto& a) { return tutti::algo::direct_all_gather_v(link, shm_group, a); },
      [](int, int) { return 0; });
}
