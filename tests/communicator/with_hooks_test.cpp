#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator/with_hooks.hpp>
#include <tutti/core/log.hpp>
#include <tutti/grad/reducer.hpp>

#include <conformance/collectives.hpp>

namespace {

using tutti::errc;
using tutti::operation_view;

/// Notes what it hears, and throws where it should.
struct listener {
  static constexpr const char* name = "listener";
  std::shared_ptr<std::vector<std::string>> heard = std::make_shared<std::vector<std::string>>();
  std::string throws_in;

  void before(const operation_view& o) { note("before", o, o.operands); }
  void after(const operation_view& o) { note("after", o, o.results); }
  void aborted(const operation_view& o, const tutti::status& why) {
    note("aborted " + std::to_string(static_cast<int>(why.code)), o, {});
  }
  void note(const std::string& which, const operation_view& o, const tutti::operation_buffers& buffers) {
    std::string text = which + " " + o.info.collective;
    buffers.for_each([&](const tutti::const_buffer& b) {
      text += " [";
      if (b.type == tutti::dtype::i32)
        for (std::size_t i = 0; i < b.count; ++i)
          text += (i ? "," : "") + std::to_string(static_cast<const int*>(b.data)[i]);
      text += "]";
    });
    heard->push_back(text);
    if (which != throws_in) return;
    throws_in.clear();
    throw std::runtime_error("no more of " + std::to_string(o.info.count) + " elements");
  }
};

std::string joined(const std::vector<std::string>& all) {
  std::string text;
  for (const auto& one : all) text += one + "; ";
  return text;
}

struct only_after {
  static constexpr const char* name = "only_after";
  int* calls;
  void after(const operation_view&) const { ++*calls; }
};
struct without_name {
  void after(const operation_view&) {}
};
struct mistyped {
  static constexpr const char* name = "mistyped";
  void before(const operation_view&) {}
  void after(int) {}
};
struct without_any {
  static constexpr const char* name = "without_any";
};
static_assert(tutti::operation_hooks<listener> && tutti::operation_hooks<only_after>);
static_assert(!tutti::operation_hooks<without_name> && !tutti::operation_hooks<mistyped> &&
              !tutti::operation_hooks<without_any>);

TEST_CASE("with_hooks: they see what a rank gives and gets") {
  tutti::run_threads(2, [](auto& plain) {
    const listener l;
    const int me = plain.rank();
    std::vector one{me, 10};
    auto pending = plain.all_reduce(one);  // stays with the communicator that issued it
    auto world = tutti::with_hooks(std::move(plain), l);
    pending.wait();
    CHECK(one == std::vector{1, 20});
    CHECK(l.heard->empty());

    std::vector ours{me + 1, 5};
    world.all_reduce(ours).wait();
    world.barrier().wait();
    std::vector root{me == 1 ? 7 : 0};
    world.broadcast(root, 1).wait();
    const int sum = world.all_reduce(me + 3).wait();
    CHECK(sum == 7);
    std::vector<int> list_a{1}, list_b{2, 3};
    std::array lists{std::span{list_a}, std::span{list_b}};
    world.all_reduce_coalesced(lists).wait();
    std::vector message{me == 0 ? 4 : 0};
    (me == 0 ? world.send(message, 1) : world.recv(message, 0)).wait();
    auto prepared = world.prepare().all_reduce(ours);
    prepared.start().wait();
    const std::string mine = std::to_string(me + 1);
    CHECK(joined(*l.heard) ==
          joined({"before all_reduce [" + mine + ",5]", "after all_reduce [3,10]", "before barrier", "after barrier",
                  me == 1 ? "before broadcast [7]" : "before broadcast", "after broadcast [7]",
                  "before all_reduce [" + std::to_string(me + 3) + "]", "after all_reduce [7]",
                  "before all_reduce_coalesced [1] [2,3]", "after all_reduce_coalesced [2] [4,6]",
                  me == 0 ? "before send [4]" : "before recv", me == 0 ? "after send" : "after recv [4]",
                  "before all_reduce [3,10]", "after all_reduce [6,20]"}));
  });
}

TEST_CASE("with_hooks: operands that are not in their buffer yet are passed in order") {
  const std::array whole{1, 2, 3, 4};
  const std::array apart{9, 8};
  const tutti::external_segment there{1, 2, apart.data()};
  const tutti::operation_buffers b{tutti::erase_type(std::span<const int>{whole}), {}, {&there, 1}};
  std::vector<int> all;
  b.for_each([&](const tutti::const_buffer& part) {
    const auto* p = static_cast<const int*>(part.data);
    all.insert(all.end(), p, p + part.count);
  });
  CHECK(all == std::vector{1, 9, 8, 4});
}

TEST_CASE("with_hooks: groups have the hooks of their world, and hooks can be around hooks") {
  tutti::run_threads(4, [](auto& plain) {
    int inner = 0;
    const listener outer;
    auto world = tutti::with_hooks(tutti::with_hooks(std::move(plain), only_after{&inner}), outer);
    auto half = world.split(world.rank() % 2);
    CHECK(half.size() == 2);
    CHECK(half.all_reduce(1).wait() == 2);
    half.close();
    world.close();
    CHECK(inner == 4);
    REQUIRE(outer.heard->size() == 8);
    CHECK(outer.heard->at(1).starts_with("after split"));
    CHECK(outer.heard->at(3) == "after all_reduce [2]");
    CHECK(outer.heard->at(7).starts_with("after close"));
  });
}

/// Runs an all_reduce whose hook throws on rank 1; returns the ranks' errors.
std::array<std::string, 2> errors_of(const std::string& throws_in, std::array<listener, 2>& hooks) {
  std::array<std::string, 2> texts;
  tutti::run_threads(2, [&](auto& plain) {
    const auto me = static_cast<std::size_t>(plain.rank());
    if (me == 1) hooks[me].throws_in = throws_in;
    auto world = tutti::with_hooks(std::move(plain), hooks[me]);
    std::vector values{1, 2, 3};
    try {
      world.all_reduce(values).wait();
      world.barrier().wait();
    } catch (const tutti::error& e) {
      CHECK(e.kind() == errc::aborted);
      CHECK(e.peer() == 1);
      CHECK(e.cause().detail == tutti::status::hook_threw);
      texts[me] = e.what();
    }
    CHECK_THROWS_AS(world.barrier().wait(), tutti::error);
  });
  return texts;
}

TEST_CASE("with_hooks: one that throws is an error of its call, and ends the world") {
  for (const std::string which : {"before", "after"}) {
    CAPTURE(which);
    std::array<listener, 2> hooks;
    const auto errors = errors_of(which, hooks);
    CAPTURE(errors[0]);
    CAPTURE(errors[1]);
    CHECK(errors[1].starts_with("all_reduce #"));
    CHECK(errors[1].find("with_hooks_test.cpp:") != std::string::npos);
    CHECK(errors[1].ends_with("failed: a hook threw an exception on this rank: listener (" + which +
                              "): no more of 3 elements"));
    CHECK(errors[0].find("failed: a hook threw an exception on rank 1") != std::string::npos);
    // The operation whose before() or after() threw gets no second hook; those that follow are aborted.
    CHECK(hooks[1].heard->at(hooks[1].heard->size() - 1) == "aborted 1 barrier");
    std::size_t aborts = 0;
    for (const auto& h : *hooks[1].heard) aborts += h.starts_with("aborted") ? 1U : 0U;
    CHECK(aborts == 1);
  }
}

std::string logged;
void log(const tutti::log_record& r) noexcept { logged = r.message; }

TEST_CASE("with_hooks: aborted() hears of operations that have no result, and what it throws is logged") {
  auto* const previous = tutti::set_log_handler(log);
  tutti::run_threads(1, [&](auto& plain) {
    listener l;
    l.throws_in = "aborted 1";
    auto world = tutti::with_hooks(std::move(plain), l);
    world.abort(5);
    std::vector values{1};
    CHECK_THROWS_AS(world.all_reduce(values).wait(), tutti::error);
    CHECK(joined(*l.heard) == joined({"before all_reduce [1]", "aborted 1 all_reduce"}));
  });
  tutti::set_log_handler(previous);
  CHECK(logged == "rank 0: the hook listener (aborted) threw an exception: no more of 1 elements");
}

/// Uses the library inside of a hook.
template <class Comm>
struct meddler {
  static constexpr const char* name = "meddler";
  const bool* aborts;
  Comm** world;
  void after(const operation_view&) const {
    if (*aborts)
      (*world)->abort(77);
    else
      (*world)->barrier().wait();
  }
};

TEST_CASE("with_hooks: inside of one, an abort is done afterwards, and calls are refused") {
  for (const bool aborts : {false, true}) {
    tutti::run_threads(2, [&](auto& plain) {
      auto other = plain.split(0);
      using comm = std::remove_reference_t<decltype(other)>;
      comm* at = &other;
      auto world = tutti::with_hooks(std::move(plain), meddler<comm>{&aborts, &at});
      try {
        world.barrier().wait();
        FAIL("nothing was thrown");
      } catch (const tutti::error& e) {
        CAPTURE(e.what());
        CHECK(e.kind() == errc::aborted);
        if (aborts) CHECK(e.cause().detail == 77);
        if (!aborts && e.peer() == world.rank())
          CHECK(std::string(e.what()).find("meddler (after): barrier in a reduction or a hook, which runs inside of "
                                           "another operation") != std::string::npos);
      }
    });
  }
}

TEST_CASE("with_hooks: a handle may outlive its communicator, whose end aborts it") {
  tutti::run_threads(2, [](auto& plain) {
    const listener l;
    std::vector values{1};
    if (plain.rank() == 1) {
      CHECK_THROWS_AS(plain.recv(values, 0).wait(),
                      tutti::error);  // ends when rank 0 aborts; another collective is a mismatch
      return;
    }
    auto world =
        std::make_unique<decltype(tutti::with_hooks(std::move(plain), l))>(tutti::with_hooks(std::move(plain), l));
    auto pending = tutti::nothrow(world->all_reduce(values));
    world.reset();
    CHECK(pending.wait().code == errc::aborted);
    CHECK(joined(*l.heard) == "before all_reduce [1]; aborted 1 all_reduce; ");
  });
}

TEST_CASE("with_hooks: a reducer works on it") {
  tutti::run_threads(2, [](auto& plain) {
    int calls = 0;
    auto world = tutti::with_hooks(std::move(plain), only_after{&calls});
    const std::array shapes{tutti::grad::parameter_shape{"w", 3}};
    tutti::grad::reducer reducer{world, shapes};
    auto pass = reducer.begin();
    const auto g = reducer.template gradient<float>(0);
    for (float& x : g) x = static_cast<float>(world.rank());
    pass.ready(0);
    tutti::sync_wait(world, pass.finish());
    CHECK(g[2] == 0.5F);
    CHECK(calls > 0);
  });
}

TEST_CASE("with_hooks: every collective" * doctest::test_suite("grid")) {
  conformance::check_collectives([](int size, auto f) {
    tutti::run_threads(
        size,
        [&](auto& plain) {
          int calls = 0;
          auto world = tutti::with_hooks(std::move(plain), only_after{&calls});
          f(world);
          CHECK(calls > 0);
        },
        std::chrono::seconds(60));
  });
}

}  // namespace
