#pragma once
#include <cstdint>

#include <tutti/async/routine.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Dissemination barrier: in step k each rank notifies the rank 2^k above it and waits for the rank 2^k below it.
/// ceil(log2 n) steps of empty messages (Hensgen, Finkel and Manber, 1988).
template <message_link L>
routine dissemination_barrier(L link) {
  const int n = link.size(), r = link.rank();
  std::uint64_t step = 0;
  for (int distance = 1; distance < n; distance *= 2, ++step) {
    auto telling = link.send((r + distance) % n, step, {});
    co_await link.recv((r + n - distance) % n, step, {});
    co_await telling;
  }
}

}  // namespace tutti::algo
