#include <doctest/doctest.h>

#include <tutti/algo/shm/scan.hpp>

#include <algo/partial_order.hpp>

TEST_CASE("direct_scan: takes ranks in their order") {
  partial_order::check_scan<tutti::threads_transport, tutti::scan_args>(
      [](auto link, auto& shm_group, const auto& a) { return tutti::algo::direct_scan(link, shm_group, a); }, 1);
  partial_order::check_scan<tutti::threads_transport, tutti::exclusive_scan_args>(
      [](auto link, auto& shm_group, const auto& a) { return tutti::algo::direct_exclusive_scan(link, shm_group, a); },
      0);
}
