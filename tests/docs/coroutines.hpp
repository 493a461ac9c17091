#pragma once
#include <chrono>
#include <tuple>
#include <vector>

#include <tutti/tutti.hpp>

// What stands around the code of docs/coroutines.md.

namespace docs_coroutines {

inline tutti::task<> step(tutti::communicator<>& world, std::vector<float>& gradient, double& loss) {
  co_await world.all_reduce(gradient, tutti::mean);
  loss = co_await world.all_reduce(loss, tutti::max);
}

inline tutti::task<> both(tutti::communicator<>& world, std::vector<float>& gradient, std::vector<double>& loss) {
  co_await tutti::when_all(std::tuple{world.all_reduce(gradient, tutti::mean), world.all_reduce(loss, tutti::max)});
}

inline tutti::task<> average(tutti::communicator<>& world, std::vector<float>& numbers) {
  for (int i = 0; i < 3; ++i) co_await world.all_reduce(numbers, tutti::mean);
}

inline void side_by_side(tutti::communicator<>& world, std::vector<float>& weights, std::vector<float>& moments) {
  tutti::sync_wait(world, tutti::when_all(average(world, weights), average(world, moments)));
}

struct event_loop {
  int& polls;
  void poll() const { ++polls; }
};

inline void loop(tutti::communicator<>& world, event_loop io, const bool& running) {
  while (running) {
    io.poll();
    world.engine().poll_for(std::chrono::milliseconds(1));
  }
}

inline tutti::task<tutti::communicator<>> split(tutti::communicator<>& world) {
  auto mine = co_await world.split_async(0, world.rank());
  co_return mine;
}

}  // namespace docs_coroutines
