#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/algo/shm/buffer_list_cursor.hpp>
#include <tutti/core/args.hpp>

namespace {

using list = std::vector<std::vector<std::byte>>;

tutti::buffer_list erased(list& of) {
  constexpr auto item = [](const void* items, std::size_t i) noexcept {
    return std::span{(*static_cast<list* const*>(items))->at(i)};
  };
  static list* shown;
  shown = &of;
  return {static_cast<const void*>(&shown), of.size(), 0, 1, tutti::dtype::u8, item};
}

TEST_CASE("buffer_list_cursor: goes through all bytes once, whatever the chunks") {
  for (const std::size_t step : {1U, 2U, 3U, 5U, 100U}) {
    list items;
    std::size_t total = 0;
    for (const std::size_t n : {0U, 3U, 0U, 0U, 1U, 7U, 0U}) {
      items.emplace_back(n);
      for (std::byte& b : items.back()) b = static_cast<std::byte>(total++);
    }
    tutti::algo::buffer_list_cursor out{erased(items)}, in{erased(items)};
    std::vector<std::byte> all(total);
    for (std::size_t done = 0; done < total; done += step) out.gather(&all[done], std::min(step, total - done));
    for (std::size_t i = 0; i < total; ++i) CHECK(all[i] == static_cast<std::byte>(i));
    for (std::byte& b : all) b = static_cast<std::byte>(std::to_integer<unsigned>(b) + 100);
    for (std::size_t done = 0; done < total; done += step) in.scatter(&all[done], std::min(step, total - done));
    std::size_t seen = 0;
    for (const auto& item : items)
      for (const std::byte b : item) CHECK(b == static_cast<std::byte>(100 + seen++));
    CHECK(seen == total);
  }
}

TEST_CASE("buffer_list_cursor: nothing of nothing") {
  list none;
  tutti::algo::buffer_list_cursor walk{erased(none)};
  walk.next(0, [](auto, std::size_t) { FAIL("a chunk"); });
}

}  // namespace
