#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tutti/wire/pending_places.hpp>

namespace {

struct pending {
  std::uint64_t source;
};

}  // namespace

TEST_CASE("there are places for all ranks at once, and for some that prove nothing") {
  CHECK(tutti::wire::pending_places(0) >= 64);
  CHECK(tutti::wire::pending_places(1000) >= 4000);
  CHECK(tutti::wire::few_pending_places() <= 256);
}

TEST_CASE("the source from which most connections come is found if it is an eighth of them") {
  const std::vector<pending> few{{1}, {2}, {3}, {2}, {2}, {4}, {5}, {2}};
  CHECK(tutti::wire::busiest_source(few) == 2);
  CHECK(tutti::wire::busiest_source(std::vector<pending>{}) == std::nullopt);
  std::vector<pending> many;
  for (std::uint64_t i = 0; i < 700; ++i) many.push_back({100 + i});
  CHECK(tutti::wire::busiest_source(many) == std::nullopt);
  for (std::uint64_t i = 0; i < 100; ++i) many.insert(many.begin() + static_cast<std::ptrdiff_t>(7 * i), pending{7});
  CHECK(tutti::wire::busiest_source(many) == 7);
  many.insert(many.end(), 101, pending{8});
  CHECK(tutti::wire::busiest_source(many) == std::nullopt);  // neither is an eighth of 901
  many.insert(many.end(), 20, pending{8});
  CHECK(tutti::wire::busiest_source(many) == 8);
}
