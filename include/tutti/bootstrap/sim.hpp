#pragma once
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/backend/sim.hpp>
#include <tutti/communicator.hpp>

namespace tutti {

/// Runs `f(world)` as each of `size` ranks on the calling thread, in an order that the seed determines, and returns
/// when all have ended. Code with blocking waits runs unchanged. If a rank throws, the others are aborted and the first
/// exception that this abort did not cause is rethrown here; exceptions of a lost rank are not. A hang is detected at
/// once and fails every operation with errc::timed_out; error messages contain the seed.
///
/// Ranks must wait for each other through tutti only: no locks held across a wait, no barriers of threads, no
/// progress_thread. Backends are `sim`, or others over a transport that is derived from sim_transport.
template <class B = sim, std::invocable<communicator<B>&> F>
  requires std::derived_from<typename B::transport_type, sim_transport>
void run_sim(int size, const sim_options& how, F f) {
  using transport_type = typename B::transport_type;
  const auto network = std::make_shared<sim_network>(size, how);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  int first = -1;
  for (int r = 0; r < size; ++r)
    network->schedule().start(r, how.stack_bytes, [&, r] {
      try {
        auto engine = std::make_shared<tutti::engine>();
        auto link = std::make_unique<transport_type>(network, r);
        auto d = std::make_shared<driver<transport_type>>(engine, std::move(link));
        communicator<B> world{B{std::move(d)}, std::move(engine), how.timeout};
        try {
          std::invoke(f, world);
        } catch (...) {
          if (first < 0 && network->lost() != r) first = r;
          world.abort();
          throw;
        }
      } catch (...) {
        failures[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  if (!network->run())
    throw error{{errc::timed_out},
                "sim: a rank waits for something that is not an operation of its world, or runs in circles (seed " +
                    std::to_string(how.seed) + ", step " + std::to_string(network->schedule().steps()) + ")"};
  if (network->lost() >= 0) failures[static_cast<std::size_t>(network->lost())] = nullptr;
  if (first >= 0) std::rethrow_exception(failures[static_cast<std::size_t>(first)]);
  for (const auto& e : failures)
    if (e) std::rethrow_exception(e);
}

/// Does the same with default options and a seed.
template <class B = sim, std::invocable<communicator<B>&> F>
void run_sim(int size, std::uint64_t seed, F f) {
  run_sim<B>(size, sim_options{.seed = seed}, std::move(f));
}

/// Calls `f(seed)` for `count` seeds from `first` on. An exception ends the loop and is rethrown, nested in an error
/// that names the seed to replay.
template <std::invocable<std::uint64_t> F>
void for_seeds(std::uint64_t first, std::uint64_t count, F f) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const auto text = "seed " + std::to_string(seed) + ": ";
    try {
      std::invoke(f, seed);
    } catch (const error& e) {
      std::throw_with_nested(error{e.cause(), text + e.what(), {e.rank(), e.sequence(), e.collective(), e.where()}});
    } catch (const std::exception& e) {
      std::throw_with_nested(std::runtime_error(text + e.what()));
    } catch (...) {
      std::throw_with_nested(std::runtime_error(text + "an exception"));
    }
  }
}

}  // namespace tutti
