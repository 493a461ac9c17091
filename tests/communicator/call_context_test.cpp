#include <doctest/doctest.h>

#include <tutti/communicator/call_context.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using tutti::detail::call_context;

TEST_CASE("call_context: a refusal names the call, and the rank where there are several") {
  CHECK(complaint([] { call_context{"send"}.refuse("no"); }) == "send: no");
  CHECK(complaint([] { call_context{"send", 0, 2}.refuse("no"); }) == "send on rank 0: no");
  CHECK(complaint([] { call_context::moved_away("send").refuse("no"); }) ==
        "this communicator was moved away or closed; call the one that it was moved to");
}

}  // namespace
