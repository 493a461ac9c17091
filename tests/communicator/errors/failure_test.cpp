#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/bootstrap/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using namespace std::chrono_literals;
using ranks::collected;
using ranks::contains;
using ranks::error_of;
using ranks::expect;
using ranks::within;
using tutti::algorithm;
using tutti::errc;
using tutti::nothrow;

std::string here(std::uint_least32_t line) { return "failure_test.cpp:" + std::to_string(line); }

TEST_CASE("failure: a timeout says everything: what, where, how much, how long, and which rank is missing") {
  for (const auto via : {algorithm::direct, algorithm::ring, algorithm::recursive_doubling}) {
    CAPTURE(tutti::name(via));
    ranks::gate over;
    std::barrier issued{3};
    collected<std::string> text(4);
    std::uint_least32_t line = 0;
    tutti::run_threads(4, [&](auto& world) {
      std::vector<float> v(64);
      world.all_reduce(v).wait();
      if (world.rank() == 2) return over.pass();        // never calls again
      if (world.rank() == 0) issued.arrive_and_wait();  // the others are there, so that only one can be missing
      if (world.rank() == 0) line = std::source_location::current().line() + 1;
      auto pending = world.all_reduce(v, tutti::sum, within(world.rank() == 0 ? 80ms : 60000ms, via));
      if (world.rank() != 0) issued.arrive_and_wait();
      const auto e = error_of(std::move(pending));
      if (world.rank() == 0) over.open();
      text[world.rank()] = e->what();
      expect(e->kind() == errc::timed_out, "the kind is " + e->code().message());
      expect(e->peer() == 2, "blamed rank", e->peer());
    });
    // The rank whose deadline it was.
    CAPTURE(text[0]);
    CHECK(contains(text[0], "all_reduce #2"));
    CHECK(contains(text[0], here(line)));
    CHECK(contains(text[0], "64 x float32"));
    CHECK(contains(text[0], "timed out after 80 ms"));
    CHECK(contains(text[0], "waiting for rank 2 (a thread of this process), last seen at #1"));
    // The others, who were told: they name the same rank and do not claim that a minute has passed.
    for (const int r : {1, 3}) {
      CAPTURE(text[r]);
      CHECK(contains(text[r], "all_reduce #2"));
      CHECK(contains(text[r], "another operation"));
      CHECK(contains(text[r], "waiting for rank 2"));
      CHECK_FALSE(contains(text[r], "60 s"));
    }
  }
}

TEST_CASE("failure: who was waited for is told by whom") {
  ranks::gate over;
  std::string text;
  tutti::run_threads(3, [&](auto& world) {
    if (world.rank() == 2) {
      expect(error_of(world.barrier(within(30ms)))->peer() == 0, "another rank is blamed");
      return over.open();
    }
    over.pass();
    if (world.rank() == 0) text = error_of(world.barrier(within(60000ms)))->what();
  });
  CHECK_MESSAGE(contains(text,
                         "failed: rank 2 (a thread of this process), last seen at #1, timed out, waiting for "
                         "this rank; what kept this rank from that call?"),
                text);
}

TEST_CASE("failure: every collective times out") {
  const auto check = [](const char* name, auto issue) {
    ranks::gate over;
    std::string text;
    tutti::run_threads(2, [&](auto& world) {
      if (world.rank() == 1) return over.pass();
      text = error_of(issue(world))->what();
      over.open();
    });
    CAPTURE(text);
    CHECK(contains(text, std::string(name) + " #1 (failure_test.cpp:"));
    CHECK(contains(text, "waiting for rank 1"));
  };
  std::vector<int> two(2), four(4), large(100000);
  std::string words(10, 'x');
  check("barrier", [](auto& w) { return w.barrier(within(30ms)); });
  check("all_reduce", [](auto& w) { return w.all_reduce(w.rank(), tutti::sum, within(30ms)); });
  check("broadcast", [&](auto& w) { return w.broadcast(four, 1, within(30ms)); });
  check("broadcast", [&](auto& w) { return w.broadcast(words, 1, within(30ms)); });
  check("reduce_scatter", [&](auto& w) { return w.reduce_scatter(four, two, tutti::sum, within(30ms)); });
  check("all_gather", [&](auto& w) { return w.all_gather(two, four, within(30ms)); });
  check("recv", [&](auto& w) { return w.recv(two, 1, 3, within(30ms)); });
  check("send", [&](auto& w) { return w.send(large, 1, 3, within(30ms)); });  // waits for its receiver
}

TEST_CASE("failure: the communicator's own timeout, and one operation that times out ends the others") {
  ranks::gate over;
  std::vector<std::string> text;
  tutti::run_threads(2, [&](auto& world) {
    expect(world.timeout() == 5min, "the default is another");
    world.timeout(50ms);
    if (world.rank() == 1) return over.pass();
    std::vector<tutti::op> pending;
    pending.push_back(world.barrier(within(60000ms)));
    pending.push_back(world.barrier());
    for (auto& o : pending) text.push_back(error_of(std::move(o))->what());
    over.open();
  });
  CAPTURE(text[0]);
  CHECK(contains(text[0], "barrier #1"));
  CHECK(contains(text[0], "another operation"));
  CAPTURE(text[1]);
  CHECK(contains(text[1], "barrier #2"));
  CHECK(contains(text[1], "timed out after 50 ms"));
}

TEST_CASE("failure: in a group, the world's rank is named") {
  ranks::gate over;
  std::string text;
  tutti::run_threads(5, [&](auto& world) {
    auto group = world.split(world.rank() % 2, -world.rank());  // {4, 2, 0} and {3, 1}
    group.barrier().wait();
    if (world.rank() == 2) return over.pass();
    if (world.rank() % 2 == 0) {
      const auto e = error_of(group.barrier(within(world.rank() == 4 ? 50ms : 60000ms)));
      if (world.rank() == 4) over.open();
      expect(e->peer() == 2, "blamed rank", e->peer());
      if (world.rank() == 4) {
        expect(e->rank() == 0, "this is rank 0 of the group");
        text = e->what();
      }
    } else {
      over.pass();
    }
  });
  CHECK(contains(text, "waiting for rank 2"));
}

TEST_CASE("failure: in a group, who is missing there is named, not who is behind elsewhere") {
  ranks::gate over;
  std::barrier issued{3};
  tutti::run_threads(4, [&](auto& world) {
    auto group = world.split(world.rank() == 3 ? 1 : 0);
    group.barrier().wait();
    if (world.rank() == 3) return over.pass();  // behind in the world
    auto elsewhere = world.barrier(within(60000ms));
    issued.arrive_and_wait();
    if (world.rank() == 2) return over.pass();  // missing in the group
    const auto e = error_of(group.barrier(within(world.rank() == 0 ? 50ms : 60000ms)));
    if (world.rank() == 0) over.open();
    expect(e->peer() == 2, "blamed rank", e->peer());
  });
}

TEST_CASE("failure: a message names the rank that does not send it, whoever is behind in the world") {
  ranks::gate over;
  tutti::run_threads(3, [&](auto& world) {
    world.barrier().wait();
    if (world.rank() != 0) return over.pass();
    auto elsewhere = world.barrier(within(60000ms));
    float v = 0;
    const auto e = error_of(world.recv(std::span{&v, 1}, 2, 0, within(50ms)));
    over.open();
    expect(e->kind() == errc::timed_out && e->peer() == 2, "blamed rank", e->peer());
  });
}

TEST_CASE("failure: an operation that waits for its turn names whom the one before it waits for") {
  ranks::gate over;
  tutti::run_threads(2, [&](auto& world) {
    auto group = world.split(0);
    std::vector<float> v(64), w(64);
    group.all_reduce(v).wait();
    if (world.rank() == 1) return over.pass();
    auto first = group.all_reduce(v, tutti::sum, within(60000ms));
    const auto e = error_of(group.all_reduce(w, tutti::sum, within(50ms)));
    over.open();
    expect(e->kind() == errc::timed_out && e->peer() == 1, "blamed rank", e->peer());
  });
}

tutti::task<> post_until_done(tutti::communicator<tutti::threads>& world) {
  auto missing = world.barrier(within(50ms));
  while (!missing.done()) co_await tutti::resume_on(world.engine());
  const tutti::status s = co_await nothrow(std::move(missing));
  expect(s.code == errc::timed_out, "the deadline passed");
}

TEST_CASE("failure: a coroutine that posts itself again and again does not stop the clock") {
  ranks::gate over;
  tutti::run_threads(2, [&](auto& world) {
    if (world.rank() == 1) return over.pass();
    tutti::sync_wait(world, post_until_done(world));
    over.open();
  });
}

TEST_CASE("failure: the first failure is sticky") {
  tutti::run_threads(3, [](auto& world) {
    if (world.rank() == 1) world.abort();
    std::vector<int> v(10);
    // A rank that was quick may have got through; from some call on all of them fail, for ever and at once.
    errc seen = errc::ok;
    std::uint64_t failed_at = 0;
    for (int i = 0; i < 100; ++i) {
      auto pending = world.all_reduce(v, tutti::sum, within(60000ms));
      try {
        pending.wait();
        expect(seen == errc::ok, "an operation succeeded after one had failed");
      } catch (const tutti::error& e) {
        expect(seen == errc::ok || seen == e.kind(), "the cause has changed");
        expect(e.sequence() > failed_at, "the sequence number stands still");
        seen = e.kind();
        failed_at = e.sequence();
      }
    }
    expect(seen == errc::aborted, "nothing failed");
    int x = 0;
    expect(nothrow(world.barrier()).wait().code == errc::aborted, "barrier");
    expect(nothrow(world.broadcast(v, 0)).wait().code == errc::aborted, "broadcast");
    expect(nothrow(world.send(v, (world.rank() + 1) % 3)).wait().code == errc::aborted, "send");
    expect(nothrow(world.recv(v, (world.rank() + 1) % 3)).wait().code == errc::aborted, "recv");
    expect(nothrow(world.all_reduce(x)).wait().code == errc::aborted, "all_reduce of a value");
    expect(contains(ranks::words_of<tutti::error>([&] { (void)world.split(0); }), "aborted"), "split");
  });
}

TEST_CASE("failure: an error knows all about itself") {
  tutti::run_threads(2, [](auto& world) {
    world.barrier().wait();
    std::vector<double> v(3);
    if (world.rank() == 1) {
      auto never = world.recv(v, 0, 9);
      expect(!nothrow(std::move(never)).wait().ok(), "it came");
      return;
    }
    const auto line = std::source_location::current().line() + 1;
    auto pending = world.all_reduce(v, tutti::max, within(40ms));
    const auto e = error_of(std::move(pending));
    expect(e->kind() == errc::timed_out && e->code() == errc::timed_out, "kind and code");
    expect(e->code().category() == tutti::category(), "category");
    expect(e->rank() == 0 && e->peer() == 1 && e->sequence() == 2, "rank, peer and sequence");
    expect(std::string_view{e->collective()} == "all_reduce", "collective");
    expect(e->where().line() == line && contains(e->where().file_name(), "failure_test.cpp"), "where");
    expect(e->cause().code == errc::timed_out && e->cause().peer == 1, "cause");
    const std::exception& base = *e;
    expect(std::string_view{base.what()} == e->what(), "what");
    const tutti::error copy = *e;
    expect(std::string_view{copy.what()} == e->what() && copy.peer() == 1, "a copy");
  });
}

TEST_CASE("failure: a message of another size is an error on both sides") {
  collected<std::string> text(2);
  tutti::run_threads(2, [&](auto& world) {
    std::vector<int> out(10), in(11);
    if (world.rank() == 0) {
      world.send(out, 1).wait();
      expect(nothrow(world.recv(in, 1)).wait().code == errc::mismatch, "the sender was not told");
    } else {
      const auto e = error_of(world.recv(in, 0));
      expect(e->kind() == errc::mismatch && e->peer() == 0, e->what());
      text[1] = e->what();
    }
  });
  CHECK(contains(text[1], "rank 0"));
  CHECK(contains(
      text[1],
      ": it sent 40 bytes of a message to this rank, which waits for 44; sender and receiver must agree on the "
      "count"));
}

/// What rank 2 hears in the world while the others call different things in a group.
template <class F>
std::string heard_elsewhere(F in_group) {
  collected<std::string> text(3);
  std::barrier divided{3};
  tutti::run_threads(3, [&](auto& world) {
    world.timeout(20s);
    auto group = world.split(world.rank() == 2 ? 1 : 0);
    group.barrier().wait();
    divided.arrive_and_wait();
    if (world.rank() == 2)
      text[2] = error_of(world.barrier())->what();
    else
      expect(nothrow(in_group(group)).wait().code == errc::mismatch, "not told");
  });
  return text[2];
}

TEST_CASE("failure: who waits elsewhere hears of a count that is each rank's own without a number") {
  const std::vector<std::size_t> counts(2, 12);
  const std::string text = heard_elsewhere([&](auto& group) {
    static thread_local std::vector<float> in(12), out(24);
    return group.rank() == 0 ? group.gather(in, out, 0) : group.gather_v(in, out, counts, 0);
  });
  CAPTURE(text);
  CHECK(contains(text, " called gather (12 x float32)"));
  CHECK(contains(text, " called gather_v (float32)"));
}

TEST_CASE("failure: who waits elsewhere hears by which algorithms ranks differ") {
  const std::string text = heard_elsewhere([&](auto& group) {
    static thread_local std::vector<float> in(12), out(24);
    auto mine = group.gather(in, out, 0, {.via = group.rank() == 0 ? algorithm::direct : algorithm::linear});
    if (group.rank() == 0) return mine;
    mine.wait();  // it has sent its block, and goes on
    return group.barrier();
  });
  CAPTURE(text);
  CHECK(contains(text, " called gather(_v) (float32, by linear)"));
  CHECK(contains(text, " called gather(_v) (float32, by direct)"));
}

TEST_CASE("failure: run_threads throws what the first rank threw, not what the others met because of it") {
  for (int round = 0; round < 20; ++round)
    CHECK_THROWS_WITH_AS(tutti::run_threads(3,
                                            [](auto& world) {
                                              world.barrier().wait();
                                              if (world.rank() == 1) throw std::domain_error("the cause");
                                              world.barrier().wait();
                                            }),
                         "the cause", std::domain_error);
}

TEST_CASE("failure: a rank may throw after it has moved its communicator away") {
  CHECK_THROWS_WITH_AS(tutti::run_threads(2,
                                          [](auto& given) {
                                            auto world = std::move(given);
                                            world.barrier().wait();
                                            if (world.rank() == 1) throw std::domain_error("the cause");
                                            world.barrier().wait();
                                          }),
                       "the cause", std::domain_error);
}

}  // namespace
