#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/pass/comparison.hpp>
#include <utility>
#include <vector>

TEST_CASE("comparison: all ranks are told the first that differs from rank 0, whether they wait or await") {
  using numbers = std::vector<std::uint64_t>;
  struct example {
    numbers of;
    int odd, nine;
  };
  for (const example& e : {example{{7, 7, 7}, -1, -1}, {{7, 9, 8}, 1, 1}, {{7, 7, 0}, 2, -1}, {{9, 7, 7}, 1, 0}})
    tutti::run_threads(3, [&](tutti::communicator<tutti::threads>& world) {
      const std::uint64_t mine = e.of[static_cast<std::size_t>(world.rank())];
      for (const bool waits : {true, false}) {
        tutti::grad::detail::comparison ids;
        const auto await = [](tutti::op flight) -> tutti::task<> {
          tutti::op gathered = std::move(flight);
          co_await std::move(gathered);
        };
        if (waits)
          ids.begin(world, mine).wait();
        else
          tutti::sync_wait(world, await(ids.begin(world, mine, {.timeout = std::chrono::seconds(30)})));
        const auto odd = ids.odd(), nine = ids.find([](std::uint64_t id) { return id == 9; });
        const bool right = odd.rank == e.odd && nine.rank == e.nine && (nine.rank < 0 || nine.id == 9) &&
                           (odd.rank < 0 || odd.id == e.of[static_cast<std::size_t>(odd.rank)]);
        if (!right) throw std::logic_error("rank " + std::to_string(odd.rank));
      }
    });
}
