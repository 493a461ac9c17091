#include <doctest/doctest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <tutti/backend/bounded_call.hpp>
#include <utility>

using namespace std::chrono_literals;
using tutti::after;
using tutti::bounded_call;

TEST_CASE("bounded_call: none is over, one that ends is waited for, and what it wrote is seen") {
  bounded_call call;
  CHECK((!call.started() && call.ended() && call.wait(after(0s))));
  int result = 0;
  call.start([&] { result = 7; });
  CHECK(call.started());
  REQUIRE(call.wait(after(1h)));
  CHECK((call.ended() && result == 7));
}

TEST_CASE("bounded_call: one that does not return is left behind, and ends by itself") {
  struct shared {
    std::latch go{1}, gone{1};
  };
  const auto both = std::make_shared<shared>();
  {
    bounded_call call;
    call.start([both] {
      both->go.wait();
      both->gone.count_down();
    });
    CHECK_FALSE(call.wait(after(1ms)));
    CHECK((call.started() && !call.ended()));
  }
  both->go.count_down();
  both->gone.wait();
}
