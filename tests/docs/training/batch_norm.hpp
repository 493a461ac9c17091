#pragma once
#include <cstddef>
#include <vector>

#include <tutti/train/batch_norm.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/batch_norm.md.

namespace docs_batch_norm {

template <class World>
tutti::task<> batch_normalisation(World& world, int steps) {
  const std::size_t channels = 2, pixels = 3;
  const std::vector<float> x(12, 1), dy(12, 1), weight(2, 1), bias(2);
  std::vector<float> y(12), dx(12), dweight(2), dbias(2);
  tutti::train::batch_norm norm{world, channels};  // beside the layer's weight and bias, which are yours
  for (int step = 0; step < steps; ++step) {
    co_await norm.template forward<float>(x, y, pixels, weight, bias);
    // ... the rest of the network, which turns y into dy ...
    co_await norm.template backward<float>(x, dy, dx, pixels, weight, dweight, dbias);
  }
  norm.template evaluate<float>(x, y, pixels, weight, bias);  // by the running statistics
}

}  // namespace docs_batch_norm
