#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include <support/docs_examples.hpp>
#include <tutti/tutti.hpp>

// What docs/coroutines.md shows.

namespace {

tutti::task<> step(tutti::communicator<>& world, std::vector<float>& gradient, double& loss) {
  co_await world.all_reduce(gradient, tutti::mean);
  loss = co_await world.all_reduce(loss, tutti::max);
}

tutti::task<> both(tutti::communicator<>& world, std::vector<float>& gradient, std::vector<double>& loss) {
  co_await tutti::when_all(std::tuple{world.all_reduce(gradient, tutti::mean), world.all_reduce(loss, tutti::max)});
}

tutti::task<> average(tutti::communicator<>& world, std::vector<float>& numbers) {
  for (int i = 0; i < 3; ++i) co_await world.all_reduce(numbers, tutti::mean);
}

struct event_loop {
  int& polls;
  void poll() const { ++polls; }
};

void loop(tutti::communicator<>& world, event_loop io, const bool& running) {
  while (running) {
    io.poll();
    world.engine().poll_for(std::chrono::milliseconds(1));
  }
}

tutti::task<tutti::communicator<>> split(tutti::communicator<>& world) {
  auto mine = co_await world.split_async(0, world.rank());
  co_return mine;
}

}  // namespace

TEST_CASE("docs/coroutines.md: its examples do what it says, and stand here") {
  auto world = tutti::init();
  std::vector<float> gradient{1, 2}, weights{3}, moments{4};
  std::vector<double> losses{5};
  double loss = 6;
  tutti::sync_wait(world, step(world, gradient, loss));
  tutti::sync_wait(world, both(world, gradient, losses));
  tutti::sync_wait(world, tutti::when_all(average(world, weights), average(world, moments)));
  bool running = true;
  int polls = 0;
  const auto stop = [](tutti::engine& e, bool& flag) -> tutti::task<> {
    co_await tutti::resume_on(e);
    flag = false;
  };
  const auto ends = tutti::sync_wait(world, split(world)).size();
  CHECK(ends == world.size());
  auto stopping = stop(world.engine(), running);
  auto waits = std::move(stopping).operator co_await();
  (void)waits.await_suspend(std::noop_coroutine());
  loop(world, {polls}, running);
  CHECK(polls > 0);
  CHECK(gradient == std::vector<float>{1, 2});
  const std::string here =
      docs_examples::bare(docs_examples::text_of(TUTTI_SOURCE_DIR "/tests/communicator/coroutines_page_test.cpp"));
  const auto blocks = docs_examples::of(TUTTI_SOURCE_DIR "/docs/coroutines.md");
  REQUIRE(blocks.size() == 5);
  for (const std::string& block : blocks)
    CHECK_MESSAGE(here.find(docs_examples::bare(block)) != std::string::npos, block);
}
