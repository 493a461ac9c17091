#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include <support/store_conformance.hpp>
#include <tutti/store/memory_store.hpp>
#include <tutti/store/prefix_store.hpp>

using namespace std::chrono_literals;
using tutti::bytes_of;

namespace {

struct prefix_family {
  tutti::memory_store store;

  template <class Body>
  void alone(Body body) {
    // A key may have 1024 bytes together with its prefix.
    tutti::prefix_store prefixed{store, ""};
    body(prefixed);
  }
  template <class Body>
  void run(int ranks, Body body) {
    tutti_test::on_threads(ranks, [&](int rank) {
      tutti::prefix_store prefixed{store, "job 7/"};
      body(rank, prefixed);
    });
  }
};

}  // namespace

TEST_CASE("prefix_store is a store") { tutti_test::check_store_conformance<prefix_family>(); }

TEST_CASE("prefixes keep users of one store apart") {
  tutti::memory_store store;
  tutti::prefix_store a{store, "a/"}, b{store, "b/"};
  static_assert(tutti::store<tutti::prefix_store<tutti::prefix_store<tutti::memory_store>>>);
  tutti::prefix_store deep{a, "b/"};
  a.set("k", bytes_of("1"));
  CHECK_FALSE(b.try_get("k").has_value());
  CHECK(tutti::text_of(store.get("a/k", tutti::after(1s))) == "1");
  deep.set("k", bytes_of("2"));
  CHECK(tutti::text_of(a.get("b/k", tutti::after(1s))) == "2");
  CHECK_THROWS_AS(a.set("", {}), tutti::usage_error);
  CHECK_THROWS_AS(a.set(std::string(1023, 'x'), {}), tutti::usage_error);
}
