#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/train/shares.hpp>

#include "digits/optimizer.hpp"

namespace digits {

/// SGD whose velocity is sharded over the ranks.
template <class T>
using divided_sgd = tutti::train::sharded_optimizer<tutti::communicator<>, T, tutti::train::sgd>;

/// Returns this rank's part of the velocity.
template <class T>
std::span<T> velocity_part(divided_sgd<T>& optimizer) {
  const auto bytes = optimizer.shards()[0].part.bytes;
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Gathers the velocity of all parameters. Collective.
template <class T>
tutti::task<std::vector<T>> gather_velocity(tutti::communicator<>& world, divided_sgd<T>& optimizer,
                                            std::size_t parameters) {
  const tutti::train::shares cut{parameters, world.size(), world.rank()};
  std::vector<T> all(parameters);
  co_await world.all_gather_v(velocity_part(optimizer), all, cut.counts());
  co_return all;
}

/// Copies this rank's part of the velocity of all parameters.
template <class T>
void keep_velocity(divided_sgd<T>& optimizer, std::span<const T> all) {
  const auto mine = all.subspan(optimizer.first(), optimizer.size());
  std::ranges::copy(mine, velocity_part(optimizer).begin());
}

}  // namespace digits
