#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include <docs/coroutines.hpp>

// The code of docs/coroutines.md, run.

TEST_CASE("docs/coroutines.md: its examples do what it says") {
  auto world = tutti::init();
  std::vector<float> gradient{1, 2}, weights{3}, moments{4};
  std::vector<double> losses{5};
  double loss = 6;
  tutti::sync_wait(world, docs_coroutines::step(world, gradient, loss));
  tutti::sync_wait(world, docs_coroutines::both(world, gradient, losses));
  docs_coroutines::side_by_side(world, weights, moments);
  bool running = true;
  int polls = 0;
  const auto stop = [](tutti::engine& e, bool& flag) -> tutti::task<> {
    co_await tutti::resume_on(e);
    flag = false;
  };
  const auto ends = tutti::sync_wait(world, docs_coroutines::split(world)).size();
  CHECK(ends == world.size());
  auto stopping = stop(world.engine(), running);
  auto waits = std::move(stopping).operator co_await();
  (void)waits.await_suspend(std::noop_coroutine());
  docs_coroutines::loop(world, {polls}, running);
  CHECK(polls > 0);
  CHECK(gradient == std::vector<float>{1, 2});
}
