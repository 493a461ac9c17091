#include <doctest/doctest.h>

#include <tutti/algo/message/chain.hpp>

#include <algo/partial_order.hpp>

TEST_CASE("chain: a reduction takes ranks in their order, beginning behind the root") {
  partial_order::check_reduce<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::chain_reduce(link, a); },
      [](int root, int size) { return (root + 1) % size; });
}

TEST_CASE("chain: scans take ranks in their order") {
  partial_order::check_scan<tutti::threads_transport, tutti::scan_args>(
      [](auto link, auto&, const auto& a) { return tutti::algo::chain_scan(link, a); }, 1);
  partial_order::check_scan<tutti::threads_transport, tutti::exclusive_scan_args>(
      [](auto link, auto&, const auto& a) { return tutti::algo::chain_exclusive_scan(link, a); }, 0);
}
