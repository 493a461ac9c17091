#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <tutti/bootstrap/threads.hpp>

#include <conformance/collectives.hpp>
#include <conformance/large.hpp>

namespace {

TEST_CASE("threads: every collective, every way, in every type") {
  conformance::check_collectives([](int size, auto f) { tutti::run_threads(size, f, std::chrono::seconds(60)); });
}

}  // namespace
