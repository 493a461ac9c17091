#include <doctest/doctest.h>

#include <tutti/communicator/caller.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using tutti::detail::caller;

TEST_CASE("caller: a refusal names the call, and the rank where there are several") {
  CHECK(complaint([] { caller{"send"}.refuse("no"); }) == "send: no");
  CHECK(complaint([] { caller{"send", 0, 2}.refuse("no"); }) == "send on rank 0: no");
}

}  // namespace
