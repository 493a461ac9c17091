#pragma once
#include <atomic>
#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/backend/threads.hpp>
#include <tutti/communicator.hpp>

namespace tutti {

/// One rank of a world of threads; for programs that make their threads themselves. All ranks share one hub.
/// A template so that only programs that call it compile it.
template <class B = threads>
communicator<B> join(std::shared_ptr<threads_hub> hub, int rank, duration timeout = std::chrono::minutes(5)) {
  using link = typename B::transport_type;
  if (rank < 0 || rank >= hub->size())
    throw usage_error("join: rank " + std::to_string(rank) + " is not in a world of " + std::to_string(hub->size()));
  auto home = std::make_shared<engine>();
  auto d = std::make_shared<driver<link>>(home, std::make_unique<link>(std::move(hub), rank));
  return {B{std::move(d)}, std::move(home), timeout};
}

/// Runs `f(world)` on `size` threads, each a rank, and returns when all have ended. `world` is a
/// communicator<threads>&, which no communicator<>& binds to: write that, or `[](auto& world) { … }`. If one throws,
/// the others are aborted and the exception is rethrown here: the first that was not itself caused by that abort.
template <std::invocable<communicator<threads>&> F>
void run_threads(int size, F f, duration timeout = std::chrono::minutes(5)) {
  auto hub = std::make_shared<threads_hub>(size);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::atomic<int> first{-1};
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r)
      ranks.emplace_back([&, r] {
        try {
          auto world = join(hub, r, timeout);
          const auto end_all = [&](bool cause) {
            int none = -1;
            if (cause) first.compare_exchange_strong(none, r);
            world.abort();
          };
          try {
            f(world);
          } catch (const error& e) {
            end_all(e.kind() != errc::aborted);  // an abort is another rank's doing
            throw;
          } catch (...) {
            end_all(true);
            throw;
          }
        } catch (...) {
          failures[static_cast<std::size_t>(r)] = std::current_exception();
        }
      });
  }
  if (first >= 0) std::rethrow_exception(failures[static_cast<std::size_t>(first.load())]);
  for (const auto& e : failures)
    if (e) std::rethrow_exception(e);
}

}  // namespace tutti
