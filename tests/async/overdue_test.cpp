#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/overdue.hpp>
#include <tutti/async/task.hpp>

#include <async/stage.hpp>

namespace {

using namespace std::chrono_literals;
using stage::owner;
using stage::started;
using tutti::errc;
using tutti::op;

/// Ends an operation whose deadline has passed, as a backend does.
class deadlines final : public tutti::progress_source {
 public:
  deadlines(tutti::engine& e, tutti::op_state& s) : engine_(e), state_(&s) { engine_.attach(*this); }
  ~deadlines() { engine_.detach(*this); }
  bool poll() noexcept override { return false; }
  void tick(tutti::deadline now) noexcept override {
    if (state_ && now >= state_->info.expires) std::exchange(state_, nullptr)->complete({errc::timed_out});
  }
  void prepare_park() noexcept override {}
  void park(tutti::duration) noexcept override {}
  void finish_park() noexcept override {}
  void unpark() noexcept override {}

 private:
  tutti::engine& engine_;
  tutti::op_state* state_;
};

struct outcome {
  std::atomic<bool> timed_out{false};
  std::thread::id where;
};

started await(op pending, outcome& out) {
  try {
    co_await std::move(pending);
  } catch (const tutti::error& e) {
    out.where = std::this_thread::get_id();
    out.timed_out = e.kind() == errc::timed_out;
  }
}

void wait_for(const std::atomic<bool>& flag) {
  for (int i = 0; i < 20000 && !flag; ++i) std::this_thread::sleep_for(1ms);
}

TEST_CASE("overdue: a deadline passes although nobody drives, and the coroutine hears of it") {
  const auto e = std::make_shared<tutti::engine>();
  owner o{*e};
  tutti::op_state& s = o.start();
  s.info.expires = tutti::clock::now() + 50ms;
  const deadlines source{*e, s};
  outcome out;
  const started waits = await(op{s}, out);
  wait_for(out.timed_out);
  REQUIRE(out.timed_out);
  CHECK(out.where != std::this_thread::get_id());
  while (!waits.done()) std::this_thread::sleep_for(1ms);
}

TEST_CASE("overdue: who drives meanwhile resumes it, and the one that was destroyed is not looked after") {
  const auto e = std::make_shared<tutti::engine>();
  owner o{*e};
  outcome out, never;
  tutti::op_state& dropped = o.start();
  dropped.info.expires = tutti::clock::now() + 20ms;
  started gone = await(op{dropped}, never);
  o.finish(dropped);
  gone.destroy();
  tutti::op_state& s = o.start();
  s.info.expires = tutti::clock::now() + 50ms;
  const deadlines source{*e, s};
  const started waits = await(op{s}, out);
  const auto until = tutti::clock::now() + 1500ms;
  while (!out.timed_out || tutti::clock::now() < until) e->poll();
  CHECK(out.where == std::this_thread::get_id());
  CHECK(waits.done());
  CHECK_FALSE(never.timed_out);
}

TEST_CASE("overdue: deadlines that never come, and engines that nobody shares, keep nobody busy") {
  tutti::engine e;
  owner o{e};
  outcome out;
  tutti::op_state& s = o.start();
  s.info.expires = tutti::deadline::max();
  const started waits = await(op{s}, out);
  tutti::op_state& past = o.start();
  past.info.expires = tutti::clock::now() - 5s;
  const started also = await(op{past}, out);
  std::this_thread::sleep_for(60ms);
  CHECK_FALSE(out.timed_out);
  o.finish(s);
  o.finish(past);
  e.poll();
  CHECK(waits.done());
  CHECK(also.done());
}

}  // namespace
