#pragma once
#include <utility>

#include <conformance/distribution.hpp>
#include <conformance/groups.hpp>
#include <conformance/in_flight.hpp>
#include <conformance/messages.hpp>
#include <conformance/movement.hpp>
#include <conformance/partial_reductions.hpp>
#include <conformance/reductions.hpp>
#include <conformance/report.hpp>
#include <conformance/special_reductions.hpp>
#include <conformance/values.hpp>

namespace conformance {

/// What every backend owes its users, as one rank of a world goes through it. Throws where the world is wrong.
template <class World>
void check_world(World& world) {
  session<World> s{world};
  check_movement(s);
  check_reductions(s);
  check_distribution(s);
  check_partial_reductions(s);
  check_special_reductions(s);
  check_values(s);
  check_messages(s);
  check_in_flight(s);
  check_groups(s);
  world.barrier().wait();
}

/// A world of nine: neither a power of two nor next to one, for what depends on the number of ranks.
template <class World>
void check_nine(World& world) {
  session<World> s{world};
  check_distribution(s);
  check_partial_reductions(s);
}

/// `run(n, f)` runs n ranks, calls `f(world)` on each with the rank's communicator, and throws what a rank threw. Ranks
/// may be threads or simulated: `f` is a function object without references to anything.
template <class Run>
void check_collectives(Run&& run) {
  for (const int size : {1, 2, 3, 4, 5, 8}) run(size, [](auto& world) { check_world(world); });
}

}  // namespace conformance
