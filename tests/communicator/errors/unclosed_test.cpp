#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/backend/composed.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/log.hpp>
#include <tutti/impl/backend/communicator_core.hpp>
#include <tutti/impl/backend/composed.hpp>

#include <support/words.hpp>

#include "transport/tcp_world.hpp"

// Communicators that end without close() after ranks have called different things, which no operation has noticed.
namespace {

using tutti_test::contains;

std::mutex mutex;
std::vector<std::string> records;

void keep(const tutti::log_record& r) noexcept {
  const std::scoped_lock guard(mutex);
  CHECK(r.level == tutti::log_level::error);
  records.emplace_back(r.message);
}

/// Returns what is logged while ranks make `calls(world)` and end their worlds.
template <class Calls>
std::vector<std::string> logged(int ranks, Calls calls) {
  records.clear();
  const auto before = tutti::set_log_handler(&keep);
  tutti::run_threads(ranks, calls);
  tutti::set_log_handler(before);
  return records;
}

/// Does the same with ranks that reach each other over TCP. What they throw counts as logged.
template <class Calls>
std::vector<std::string> logged_over_tcp(int ranks, Calls calls) {
  records.clear();
  const auto before = tutti::set_log_handler(&keep);
  tcp_world::plan p{ranks};
  p.options.goodbye = std::chrono::seconds{20};
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto home = std::make_shared<tutti::engine>();
      auto d = std::make_shared<tutti::driver<tutti::tcp_transport>>(home, p.transport(r));
      tutti::communicator<tutti::composed<tutti::tcp_transport>> world{
          tutti::composed<tutti::tcp_transport>{std::move(d)}, std::move(home), std::chrono::seconds(20)};
      try {
        calls(world);
      } catch (const tutti::error& e) {
        keep({tutti::log_level::error, e.what()});
      }
    });
  for (std::thread& t : threads) t.join();
  tutti::set_log_handler(before);
  return records;
}

}  // namespace

TEST_CASE("unclosed: a mistake in the last call, which no message shows, is logged over TCP") {
  std::barrier sent{9};
  const auto all = logged_over_tcp(9, [&sent](auto& world) {
    std::vector<float> some(1);
    world.barrier().wait();
    world.broadcast(some, world.rank() == 8 ? 8 : 0).wait();  // messages carry the last three bits of the root
    sent.arrive_and_wait();                                   // nobody sends to a rank that has ended
  });
  REQUIRE(!all.empty());  // by who ends last, and maybe by others
  for (const std::string& words : all) {
    CAPTURE(words);
    CHECK(contains(words, "has ended its world without close()"));
    CHECK(contains(words, "rank 8"));
    CHECK(contains(words, "have called 2 collectives, of which at least one is not the same"));
    CHECK(contains(words, "all ranks must issue the same operations"));
  }
}

TEST_CASE("unclosed: one that messages show is logged over TCP, or thrown where a rank still waits") {
  for (int i = 0; i < 10; ++i)
    CHECK(!logged_over_tcp(4, [](auto& world) {
             std::vector<float> some(1);
             world.barrier().wait();
             world.broadcast(some, world.rank() == 1 ? 1 : 0).wait();
           }).empty());
}

TEST_CASE("unclosed: over TCP, nothing is logged where calls are equal, were not made yet, or were compared") {
  std::barrier alone{3};
  const auto equal = logged_over_tcp(3, [&alone](auto& world) {
    std::vector<float> some(1000), more(3000);
    for (int i = 0; i < 4; ++i) {
      world.all_reduce(some).wait();
      world.broadcast(some, i % 3).wait();
      world.all_gather(some, more).wait();
    }
    auto half = world.split(world.rank() % 2);
    half.barrier().wait();
    if (world.rank() == 0) world.broadcast(some, 0).wait();  // the others end without it, once it is done
    alone.arrive_and_wait();
  });
  for (const std::string& words : equal) CHECK(words == "");
  const auto thrown = logged_over_tcp(2, [](auto& world) {
    std::vector<int> some(1);
    world.barrier().wait();
    const std::string words = tutti_test::words_of<tutti::error>([&] {
      world.broadcast(some, world.rank()).wait();
      world.close();
    });
    CHECK(contains(words, "broadcast"));
  });
  for (const std::string& words : thrown) CHECK(words == "");
}

TEST_CASE("unclosed: a mistake in the last call is logged, with both calls") {
  const auto all = logged(3, [](auto& world) {
    std::vector<float> some(1);
    world.barrier().wait();
    world.broadcast(some, world.rank() == 2 ? 2 : 0).wait();  // neither root waits for anybody
  });
  REQUIRE(!all.empty());  // by who ends last, and maybe by others
  for (const std::string& words : all) {
    CAPTURE(words);
    CHECK(contains(words, "ended a communicator without close()"));
    CHECK(contains(words, "root 2"));
    CHECK(contains(words, "root 0"));
    CHECK(contains(words, "all ranks must issue the same operations"));
  }
}

TEST_CASE("unclosed: of a group, too") {
  const auto all = logged(3, [](auto& world) {
    std::vector<int> some(1);
    auto group = world.split(0);
    group.barrier().wait();
    group.broadcast(some, group.rank() == 2 ? 2 : 0).wait();
    world.barrier().wait();  // all have called before one ends the group
  });
  CHECK(all.size() == 3);
}

TEST_CASE("unclosed: nothing is logged where calls are equal, or were not made yet") {
  std::barrier alone{3};
  const auto all = logged(3, [&alone](auto& world) {
    std::vector<float> some(1000), more(3000);
    for (int i = 0; i < 20; ++i) {
      world.all_reduce(some).wait();
      world.broadcast(some, i % 3).wait();
      world.all_gather(some, more).wait();
      world.reduce(some, 1).wait();
      world.all_reduce(some, tutti::sum, {.via = i % 2 == 0 ? tutti::algorithm::ring : tutti::algorithm::automatic})
          .wait();
    }
    auto half = world.split(world.rank() % 2);
    half.barrier().wait();
    if (world.rank() == 0) world.broadcast(some, 0).wait();  // the others end without it, once it is done
    alone.arrive_and_wait();
  });
  for (const std::string& words : all) CHECK(words == "");
}

TEST_CASE("unclosed: what an exception has told is not logged") {
  const auto all = logged(2, [](auto& world) {
    std::vector<int> some(1);
    world.broadcast(some, world.rank()).wait();
    try {
      world.close();
    } catch (const tutti::error& e) {
      CHECK(e.kind() == tutti::errc::mismatch);
    }
  });
  for (const std::string& words : all) CHECK(words == "");
  const auto failed = logged(2, [](auto& world) {
    std::vector<int> some(1);
    try {
      world.broadcast(some, world.rank()).wait();
      world.barrier().wait();
    } catch (const tutti::error& e) {
      CHECK(e.kind() == tutti::errc::mismatch);
    }
  });
  for (const std::string& words : failed) CHECK(words == "");
}
