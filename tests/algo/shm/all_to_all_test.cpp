#include <doctest/doctest.h>

#include <tutti/algo/shm/all_to_all.hpp>

#include <algo/parcels.hpp>

// From 256 KiB on equal blocks are copied from where they are in the one transport, and staged in the other.
TEST_CASE_TEMPLATE("direct_all_to_all: every block comes to its place, equal or not, apart and in place", T,
                   tutti::threads_transport, links::staging_transport) {
  parcels::check_all_to_all<T>(
      [](auto link, auto& shm_group, const auto& a) { return tutti::algo::direct_all_to_all(link, shm_group, a); });
}
