#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include <tutti/backend/registration.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator.hpp>

namespace {

using tutti::registration;

TEST_CASE("registration: one owner, which ends it once") {
  int ends = 0;
  const auto held = [&] { return registration{std::shared_ptr<void>{&ends, [](int* n) { ++*n; }}}; };
  {
    registration a = held();
    CHECK(a.registered());
    registration b = std::move(a);
    CHECK_FALSE(a.registered());
    CHECK(b.registered());
    CHECK(ends == 0);
    b = held();
    CHECK(ends == 1);
    b.release();
    CHECK(ends == 2);
    CHECK_FALSE(b.registered());
    b.release();
  }
  CHECK(ends == 2);
  const registration none;
  CHECK_FALSE(none.registered());
}

TEST_CASE("registration: ranks that are threads map all memory anyway") {
  tutti::run_threads(2, [](auto& world) {
    std::vector<float> data(100000, 1);
    const auto held = world.register_buffer(data);
    CHECK(held.registered());
    world.all_reduce(data).wait();
    CHECK(data[50000] == 2);
  });
}

}  // namespace
