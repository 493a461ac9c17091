#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/shm/fold_chunk.hpp>
#include <tutti/core/reduction.hpp>

using tutti::stores;
using tutti::algo::shm_group;

TEST_CASE("fold_chunk: one result or several, all hold the sum of all operands") {
  for (const std::size_t count : {1U, 63U, 4096U, 100001U})
    for (std::size_t results = 1; results <= 3; ++results) {
      CAPTURE(count);
      CAPTURE(results);
      shm_group shm;
      std::vector<std::vector<float>> each;
      auto& room = shm.room();
      for (std::size_t r = 0; r < 3; ++r) each.emplace_back(count, static_cast<float>(r + 1));
      for (const auto& e : each) room.operands.push_back(e.data());
      for (std::size_t r = 0; r < results; ++r) room.results.push_back(each[r].data());
      tutti::algo::detail::fold_chunk(shm, count, stores::own_first, tutti::erase_type<float>(tutti::sum));
      for (std::size_t r = 0; r < 3; ++r)
        CHECK(each[r] == std::vector<float>(count, r < results ? 6.0F : static_cast<float>(r + 1)));
    }
}
