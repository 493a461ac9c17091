#pragma once
#include <utility>

#include <conformance/bits.hpp>
#include <conformance/distribution.hpp>
#include <conformance/every_reduction.hpp>
#include <conformance/groups.hpp>
#include <conformance/in_flight.hpp>
#include <conformance/messages.hpp>
#include <conformance/movement.hpp>
#include <conformance/partial_reductions.hpp>
#include <conformance/reductions.hpp>
#include <conformance/report.hpp>
#include <conformance/special_reductions.hpp>
#include <conformance/thread_state.hpp>
#include <conformance/values.hpp>

namespace conformance {

/// What every backend owes its users, as one rank of a world goes through it; of every reduction of every type, one in
/// `stride`. Throws where the world is wrong.
template <class World>
void check_world(World& world, grid how, std::size_t stride) {
  session<World> s{world, how};
  check_movement(s);
  check_reductions(s);
  check_every_reduction(s, stride);
  check_bits(s);
  check_distribution(s);
  check_partial_reductions(s);
  check_special_reductions(s);
  check_values(s);
  check_messages(s);
  check_in_flight(s);
  check_thread_state(s);
  check_groups(s);
  world.barrier().wait();
}

/// Large worlds are slow on few cores: what depends on counts and types is tried in small ones.
inline grid grid_of(int size) {
  if (tutti_test::reduced()) return size == 3 ? grid::thin : grid::light;
  return size == 3 || (size < 5 && !tutti_test::slow) ? grid::full : grid::thin;
}

/// `run(n, f)` runs n ranks, calls `f(world)` on each with the rank's communicator, and throws what a rank threw. Ranks
/// may be threads or simulated: `f` is a function object without references to anything. Powers of two, their
/// neighbours, primes and odd squares: algorithms differ in what they do with each.
template <class Run>
void check_collectives(Run&& run) {
  for (const int size : tutti_test::world_sizes())
    run(size, [](auto& world) {
      const grid how = grid_of(world.size());
      check_world(world, how, tutti_test::reduction_stride(how == grid::full ? 4 : 8));
    });
}

}  // namespace conformance
