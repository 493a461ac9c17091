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

class threads_hub;

/// Returns the communicator of one rank of a world of threads, for programs that create their threads themselves. All
/// ranks share one hub (<tutti/transport/threads.hpp>). Throws usage_error for a rank that is not in the hub's world.
template <class B = threads>
communicator<B> join(std::shared_ptr<threads_hub> hub, int rank, duration timeout = std::chrono::minutes(5));

namespace detail {
/// Makes a hub. A template, so that threads_hub may be incomplete here.
template <class Hub>
std::shared_ptr<Hub> make_hub(int size);
}  // namespace detail

/// Runs `f(world)` on `size` threads, each a rank, and returns when all have ended. `world` is a
/// communicator<threads>&, which does not bind to communicator<>&: write `[](auto& world) { … }`, or that type. If a
/// rank throws, the others are aborted and the first exception that this abort did not cause is rethrown here. If not
/// all threads can be started, none calls `f`, and std::system_error is thrown.
template <std::invocable<communicator<threads>&> F>
void run_threads(int size, F f, duration timeout = std::chrono::minutes(5)) {
  auto hub = detail::make_hub<threads_hub>(size);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::atomic<int> first{-1};
  enum class word { wait, run, end };
  std::atomic<word> said{word::wait};
  const auto say = [&](word what) {
    said = what;
    said.notify_all();
  };
  {
    std::vector<std::jthread> ranks;
    const auto start = [&](int r) {
      ranks.emplace_back([&, r] {
        said.wait(word::wait);
        if (said == word::end) return;
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
            end_all(e.kind() != errc::aborted);  // another rank caused an abort
            throw;
          } catch (...) {
            end_all(true);
            throw;
          }
        } catch (...) {
          failures[static_cast<std::size_t>(r)] = std::current_exception();
        }
      });
    };
    try {
      for (int r = 0; r < size; ++r) start(r);
    } catch (...) {
      say(word::end);  // the ranks would wait for one that never comes
      throw;
    }
    say(word::run);
  }
  if (first >= 0) std::rethrow_exception(failures[static_cast<std::size_t>(first.load())]);
  for (const auto& e : failures)
    if (e) std::rethrow_exception(e);
}

}  // namespace tutti

#if defined(TUTTI_SEPARATE_COMPILATION)
namespace tutti {
extern template communicator<threads> join<threads>(std::shared_ptr<threads_hub>, int, duration);
extern template std::shared_ptr<threads_hub> detail::make_hub<threads_hub>(int);
}  // namespace tutti
#else
#include <tutti/impl/bootstrap/threads.hpp>
#endif
