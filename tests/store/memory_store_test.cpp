#include <doctest/doctest.h>

#include <support/store_conformance.hpp>
#include <tutti/store/memory_store.hpp>
#include <tutti/store/prefix_store.hpp>

using namespace std::chrono_literals;
using tutti::bytes_of;

namespace {

struct memory_family {
  tutti::memory_store store;

  template <class Body>
  void alone(Body body) {
    body(store);
  }
  template <class Body>
  void run(int ranks, Body body) {
    tutti_test::on_threads(ranks, [&](int rank) { body(rank, store); });
  }
};

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

TEST_CASE("memory_store is a store") { tutti_test::check_store_conformance<memory_family>(); }

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

TEST_CASE("a store is bounded in keys and in bytes, and says when it is full") {
  tutti::memory_store store{{.keys = 3, .bytes = 100}};
  store.set("a", std::vector<std::byte>(50));
  store.set("b", {});
  const auto kind_of_set = [&](const char* key, std::size_t bytes) {
    try {
      store.set(key, std::vector<std::byte>(bytes));
      return tutti::errc::ok;
    } catch (const tutti::error& e) {
      return e.kind();
    }
  };
  CHECK(kind_of_set("b", 48) == tutti::errc::ok);
  CHECK(kind_of_set("b", 49) == tutti::errc::out_of_resources);
  CHECK(store.get("b", tutti::after(1s)).size() == 48);
  CHECK(kind_of_set("c", 0) == tutti::errc::out_of_resources);
  CHECK(kind_of_set("b", 0) == tutti::errc::ok);
  CHECK(kind_of_set("c", 0) == tutti::errc::ok);
  CHECK(kind_of_set("d", 0) == tutti::errc::out_of_resources);
  CHECK(store.erase("c"));
  CHECK(kind_of_set("d", 0) == tutti::errc::ok);
  CHECK_THROWS_AS(store.add("n", 1), tutti::error);
}
