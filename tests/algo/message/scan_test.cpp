#include <doctest/doctest.h>

#include <tutti/algo/message/scan.hpp>

#include <algo/partial_order.hpp>

TEST_CASE("scan: recursive doubling takes ranks in their order") {
  partial_order::check_scan<tutti::threads_transport, tutti::scan_args>(
      [](auto link, auto&, const auto& a) { return tutti::algo::recursive_doubling_scan(link, a); }, 1);
  partial_order::check_scan<tutti::threads_transport, tutti::exclusive_scan_args>(
      [](auto link, auto&, const auto& a) { return tutti::algo::recursive_doubling_exclusive_scan(link, a); }, 0);
}
