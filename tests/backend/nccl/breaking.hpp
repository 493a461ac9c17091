#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <support/gpus.hpp>

// What ranks are told when something breaks between two rounds of what they do.

struct outcome {
  tutti::errc kind{};
  std::string words;
};

/// What each of two ranks is told that runs `round(gpus)` again and again, when rank 1 calls `break_it` after the
/// first; nothing may be left.
template <class Round, class F>
std::vector<outcome> rounds_broken_by(fake::machine& machine, Round round, F break_it,
                                      tutti::nccl_options how = {.patience = std::chrono::milliseconds(200)}) {
  std::vector<outcome> told(2);
  std::atomic<int> ready{0};
  run_gpus(
      2,
      [&](gpus& g, auto& world) {
        round(g);
        ++ready;  // not a barrier, which the failure could overtake
        if (g.rank() == 1) {
          while (ready < 2) world.engine().poll();
          break_it();
        }
        auto& mine = told[static_cast<std::size_t>(g.rank())];
        mine.words = words_of(
            [&] {
              for (int i = 0; i < 3; ++i) round(g);
            },
            mine.kind);
        // The first failure stays.
        tutti::errc later{};
        words_of([&] { g.barrier().wait(); }, later);
        CHECK(later == mine.kind);
      },
      how);
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
  return told;
}
