#include <doctest/doctest.h>

#include <support/fakes/fake_nccl.hpp>
#include <tutti/backend/nccl/feature.hpp>

namespace {

using tutti::nccl_feature;
using tutti::nccl_since;

static_assert(nccl_since(nccl_feature::shrink) == 22700 && nccl_since(nccl_feature::exchange) == 22803 &&
              nccl_since(nccl_feature::revoke) == 22807 && nccl_since(nccl_feature::grow) == 22902 &&
              nccl_since(nccl_feature::timed_calls) == 23003);

TEST_CASE("nccl_feature: there from its version on, where what calls it was compiled or found") {
  fake::machine machine;
  for (const auto f : {nccl_feature::memory, nccl_feature::windows, nccl_feature::shrink, nccl_feature::exchange,
                       nccl_feature::revoke, nccl_feature::grow, nccl_feature::timed_calls}) {
    CHECK(tutti::nccl_has<fake::nccl>(f, nccl_since(f)));
    CHECK(!tutti::nccl_has<fake::nccl>(f, nccl_since(f) - 1));
    machine.lacking = {f};
    CHECK(!tutti::nccl_has<fake::nccl>(f, nccl_since(f)));
  }
}

}  // namespace
