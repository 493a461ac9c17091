#pragma once
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti_test {

/// Runs `body(me)` on `ranks` threads, each with a `me` of its own from `make(rank)`. Calls `me.abort()` where it
/// throws, and rethrows what the first of them threw.
template <class Make, class Body>
void on_threads(int ranks, Make make, Body body) {
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto me = make(rank);
        try {
          body(me);
        } catch (...) {
          {
            const std::lock_guard lock{mutex};
            if (!first) first = std::current_exception();
          }
          me.abort();
        }
      });
  }
  if (first) std::rethrow_exception(first);
}

/// Does the same with `body(rank)`, where ranks do not wait for one that has thrown.
template <class Body>
void on_threads(int ranks, Body body) {
  struct number {
    int rank;
    void abort() const noexcept {}
  };
  on_threads(ranks, [](int rank) { return number{rank}; }, [&](const number& me) { body(me.rank); });
}

}  // namespace tutti_test
