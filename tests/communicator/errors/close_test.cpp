#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>

#include <support/words.hpp>

namespace {

using tutti_test::complaint;
using tutti_test::contains;

/// Ranks make `calls(world)`, and close. What each was told, in rank order; empty for nothing.
template <class Run, class Calls>
std::vector<std::pair<std::string, int>> told(Run run, int ranks, Calls calls) {
  std::vector<std::pair<std::string, int>> all(static_cast<std::size_t>(ranks));
  run(ranks, [&](auto& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    const auto note = [&](const tutti::error& e) {
      all[me] = {e.what(), e.peer()};
      CHECK(e.kind() == tutti::errc::mismatch);
    };
    try {
      calls(world);
    } catch (const tutti::error& e) {
      note(e);
    }
    try {
      world.close();
    } catch (const tutti::error& e) {
      note(e);
    }
    CHECK(contains(complaint([&] { world.barrier().wait(); }), "was moved away or closed"));
  });
  return all;
}

/// In the memory of threads, and by messages.
template <class Check>
void everywhere(Check check) {
  SUBCASE("in shared memory") {
    check([](int ranks, auto body) { tutti::run_threads(ranks, body); });
  }
  SUBCASE("by messages") {
    check([](int ranks, auto body) { tutti::run_sim(ranks, 7, body); });
  }
}

}  // namespace

TEST_CASE("close: ranks that called the same hear nothing, and their communicator has ended") {
  everywhere([](auto run) {
    const auto all = told(run, 3, [](auto& world) {
      std::vector<float> some(100);
      world.all_reduce(some).wait();
      auto half = world.split(world.rank() % 2);
      half.all_reduce(some).wait();
      if (world.rank() == 0) world.send(some, 1).wait();
      if (world.rank() == 1) world.recv(some, 0).wait();
      half.close();
      world.broadcast(some, 2).wait();
    });
    for (const auto& [words, peer] : all) CHECK(words == "");
  });
}

TEST_CASE("close: a mistake in the last call is told to all ranks, with the one that differs") {
  everywhere([](auto run) {
    const auto all = told(run, 4, [](auto& world) {
      std::vector<float> some(1);
      world.barrier().wait();
      world.broadcast(some, world.rank() == 3 ? 1 : 0).wait();
    });
    for (const auto& [words, peer] : all) {
      CAPTURE(words);
      CHECK((peer == 3 || peer == -1));  // by messages two differ, and nobody knows what the others called
      CHECK(contains(words, "root 1"));
      CHECK(contains(words, "all ranks must issue the same operations"));
    }
  });
}

TEST_CASE("close: a rank that made a call more is told from the others") {
  everywhere([](auto run) {
    const auto all = told(run, 3, [](auto& world) {
      std::vector<int> some(1);
      world.barrier().wait();
      if (world.rank() == 1) world.broadcast(some, 1).wait();  // which waits for nobody
    });
    for (const auto& [words, peer] : all) {
      CAPTURE(words);
      CHECK(words != "");
      CHECK((peer == 1 || peer == -1));
    }
  });
}
