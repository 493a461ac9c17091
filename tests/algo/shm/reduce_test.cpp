#include <doctest/doctest.h>

#include <tutti/algo/shm/reduce.hpp>

#include <algo/partial_order.hpp>

// 20000 words are mapped in the one transport, and staged in two slots in the other.
TEST_CASE_TEMPLATE("direct_reduce: takes ranks in their order, whoever the root is", T, tutti::threads_transport,
                   links::staging_transport) {
  partial_order::check_reduce<T>(
      [](auto link, auto& shm_group, const auto& a) { return tutti::algo::direct_reduce(link, shm_group, a); },
      [](int, int) { return 0; });
}
