#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include <tutti/algo/message/barrier.hpp>

#include <algo/links.hpp>

namespace {

TEST_CASE("barrier: nobody leaves before all have come") {
  for (const int size : {1, 2, 3, 5, 8}) {
    std::atomic<int> came{0};
    links::run(size, [&](auto& me) {
      for (int round = 1; round <= 50; ++round) {
        came.fetch_add(1);
        me.run([](auto link) { return tutti::algo::dissemination_barrier(link); });
        const int there = came.load();
        links::expect(there >= round * me.size(),
                      std::to_string(there) + " had come to barrier " + std::to_string(round));
      }
    });
  }
}

}  // namespace
