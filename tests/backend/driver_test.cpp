#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

namespace {

using driver = tutti::driver<tutti::threads_transport>;

std::shared_ptr<driver> one_of(int size) {
  return std::make_shared<driver>(
      std::make_shared<tutti::engine>(),
      std::make_unique<tutti::threads_transport>(std::make_shared<tutti::threads_hub>(size), 0));
}

TEST_CASE("driver: memory is zeroed, aligned to pages, and may be nothing") {
  const auto d = one_of(1);
  auto guard = d->engine().lock();
  for (const std::size_t bytes : {0U, 1U, 5000U}) {
    std::byte* p = d->allocate(bytes);
    CHECK(p != nullptr);
    for (std::size_t i = 0; i < bytes; ++i) CHECK(p[i] == std::byte{});
    d->deallocate(p);
  }
}

TEST_CASE("driver: groups of one parent are split at a time, each with a context beyond all so far") {
  const auto d = one_of(1);
  d->use_context(5);
  d->use_context(3);
  CHECK(d->begin_split(4) == 6);
  CHECK(d->begin_split(4) == 7);
  CHECK_THROWS_AS(static_cast<void>(d->begin_split(0)), tutti::usage_error);
  d->end_split();
  CHECK_THROWS_AS(static_cast<void>(d->begin_split(0)), tutti::usage_error);
  d->end_split();
  d->use_context(9);
  CHECK(d->begin_split(0) == 10);
  d->end_split();
}

/// Remembers for which operations somebody was asked.
class asking : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  void ask(const tutti::routine::promise_type*, std::uint64_t tag) noexcept {
    supported.push_back(tutti::tag::sequence(tag));
  }
  std::vector<std::uint64_t> supported;
};

TEST_CASE("driver: who waits asks after a while, ever more rarely, and at once again about what is next to wait long") {
  using std::chrono::milliseconds;
  tutti::driver<asking> d(std::make_shared<tutti::engine>(),
                          std::make_unique<asking>(std::make_shared<tutti::threads_hub>(2), 0));
  auto guard = d.engine().lock();
  const tutti::deadline start{std::chrono::hours(1)};
  const auto at = [&](int ms) {
    d.link().supported.clear();
    d.tick(start + milliseconds(ms));
    return d.link().supported;
  };
  using numbers = std::vector<std::uint64_t>;
  tutti::op_state first, second, message;
  const auto issue = [&](tutti::op_state& s, std::uint64_t sequence, int ms) {
    s.info.sequence = sequence;
    s.info.issued = start + milliseconds(ms);
    s.info.expires = tutti::deadline::max();
    d.enter(s);
  };
  CHECK(at(0).empty());
  first.info.context = second.info.context = 0;
  issue(first, 1, 0);
  issue(message, 7, 0);
  CHECK(at(1).empty());
  CHECK(at(100).empty());
  CHECK(at(101) == numbers{1});
  CHECK(at(150).empty());
  CHECK(at(201) == numbers{1});
  issue(second, 2, 300);
  CHECK(at(400).empty());
  CHECK(at(401) == numbers{1, 2});
  for (int ms = 800; ms < 20000; ms += 100) at(ms);
  d.in_flight().remove(first);
  d.in_flight().remove(message);
  CHECK(at(20000).empty());
  CHECK(at(20100) == numbers{2});
  d.in_flight().remove(second);
  for (int i = 0; i < 10; ++i) {  // a queue that moves, however long each of it has been there
    issue(first, static_cast<std::uint64_t>(i), 30000 + i);
    CHECK(at(31000 + 90 * i).empty());
    d.in_flight().remove(first);
  }
}

/// Counts the warnings that operations wait for long.
struct warned final : tutti::op_owner {
  void release(tutti::op_state&) noexcept override {}
  void stalled(const tutti::op_state& s, int, tutti::duration) noexcept override { of.push_back(s.info.sequence); }
  void failed(tutti::status&) noexcept override {}
  tutti::error describe(const tutti::op_state&) const override { return tutti::error{{}, ""}; }
  tutti::engine& engine() noexcept override { return *engine_; }
  tutti::engine* engine_ = nullptr;
  std::vector<std::uint64_t> of;
};

TEST_CASE("driver: a queue that moves is no stall, however long each operation has been in it") {
  using std::chrono::seconds;
  const auto d = one_of(1);
  auto guard = d->engine().lock();
  warned all;
  all.engine_ = &d->engine();
  const tutti::deadline start{std::chrono::hours(1)};
  tutti::op_state queue[3];
  for (std::uint64_t i = 0; i < 3; ++i) {
    queue[i].owner = &all;
    queue[i].info.context = 0;
    queue[i].info.sequence = i + 1;
    queue[i].info.issued = start;
    queue[i].info.expires = tutti::deadline::max();
    d->enter(queue[i]);
  }
  for (int s = 0; s < 29; ++s) d->tick(start + seconds(s));
  d->in_flight().remove(queue[0]);
  for (int s = 29; s < 57; ++s) d->tick(start + seconds(s));
  CHECK(all.of.empty());
  d->in_flight().remove(queue[1]);
  for (int s = 57; s < 85; ++s) d->tick(start + seconds(s));
  CHECK(all.of.empty());
  for (int s = 85; s < 150; ++s) d->tick(start + seconds(s));
  CHECK(all.of == std::vector<std::uint64_t>{3, 3});  // after 30 s as the oldest, and after 60 s
  d->in_flight().remove(queue[2]);
}

TEST_CASE("driver: a deadline that passed while nobody drove counts after what has come meanwhile was looked at") {
  using std::chrono::milliseconds;
  for (const bool was_away : {true, false}) {
    CAPTURE(was_away);
    tutti::driver<asking> d(std::make_shared<tutti::engine>(),
                            std::make_unique<asking>(std::make_shared<tutti::threads_hub>(2), 0));
    auto guard = d.engine().lock();
    const tutti::deadline start{std::chrono::hours(1)};
    const auto fails_at = [&](int ms) {
      d.tick(start + milliseconds(ms));
      return !d.link().failure().ok();
    };
    tutti::op_state op;
    op.info.issued = start;
    op.info.expires = start + milliseconds(100);
    d.enter(op);
    for (int ms = 0; ms < 95; ms += 5) CHECK_FALSE(fails_at(ms));
    if (was_away) {
      CHECK_FALSE(fails_at(1000));
      CHECK_FALSE(fails_at(1015));
      CHECK(fails_at(1021));
    } else {
      CHECK(fails_at(101));
    }
    d.in_flight().remove(op);
  }
}

TEST_CASE("driver: whoever drives only now and then is given that once") {
  using std::chrono::milliseconds;
  tutti::driver<asking> d(std::make_shared<tutti::engine>(),
                          std::make_unique<asking>(std::make_shared<tutti::threads_hub>(2), 0));
  auto guard = d.engine().lock();
  const tutti::deadline start{std::chrono::hours(1)};
  const auto fails_at = [&](int ms) {
    d.tick(start + milliseconds(ms));
    return !d.link().failure().ok();
  };
  tutti::op_state op;
  op.info.issued = start;
  op.info.expires = start + milliseconds(120);
  d.enter(op);
  for (int ms = 0; ms < 200; ms += 50) CHECK_FALSE(fails_at(ms));
  CHECK(fails_at(200));
  d.in_flight().remove(op);
}

TEST_CASE("driver: an operation past its deadline ends all that are in flight, and says whom it waited for") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<int> v(10), w(10);
  auto waits_for_two = world.recv(v, 2, 0, {.timeout = std::chrono::milliseconds(20)});
  auto patient = world.recv(w, 0, 0, {.timeout = std::chrono::hours(1)});
  const tutti::status first = tutti::nothrow(std::move(waits_for_two)).wait();
  CHECK(first.code == tutti::errc::timed_out);
  CHECK(first.peer == 2);
  const tutti::status second = tutti::nothrow(std::move(patient)).wait();
  CHECK(second.code == tutti::errc::timed_out);
  CHECK(second.peer == 2);
}

TEST_CASE("driver: the last of its owners says goodbye, so that peers stop waiting") {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  auto stays = tutti::join(hub, 0);
  std::vector<int> v(3);
  auto receiving = stays.recv(v, 1);
  tutti::join(hub, 1);
  CHECK(tutti::nothrow(std::move(receiving)).wait().code == tutti::errc::peer_left);
}

}  // namespace
