#include <doctest/doctest.h>

#include <support/store_conformance.hpp>
#include <tutti/store/memory_store.hpp>

using namespace std::chrono_literals;

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

}  // namespace

TEST_CASE("memory_store is a store") { tutti_test::check_store_conformance<memory_family>(); }

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
