#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "common/random.hpp"
#include "digits/dataset.hpp"

namespace digits {

/// A batch of images, with pixels scaled to 0..1, and their labels.
template <class T>
struct batch {
  std::vector<T> pixels;
  std::vector<std::uint8_t> labels;

  std::size_t size() const { return labels.size(); }
};

/// Copies images of a data set, by their indices, into a batch.
template <class T>
batch<T> gather(const dataset& data, std::span<const std::uint32_t> indices) {
  const std::size_t pixels = data.shape.size();
  const T scale = T{1} / static_cast<T>(data.largest_pixel);
  batch<T> result;
  result.pixels.reserve(indices.size() * pixels);
  result.labels.reserve(indices.size());
  for (const std::uint32_t index : indices) {
    for (std::size_t i = 0; i < pixels; ++i)
      result.pixels.push_back(static_cast<T>(data.pixels[index * pixels + i]) * scale);
    result.labels.push_back(data.labels[index]);
  }
  return result;
}

/// Returns the numbers 0..count-1 in the order of an epoch, which is the same on all ranks and for any world size.
inline std::vector<std::uint32_t> epoch_order(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  // Mixes the seed before the epoch is added: else epoch e + 1 of seed 1 would equal epoch e of seed 2.
  common::random_source random{common::random_source{seed}.next() + epoch};
  common::shuffle(std::span{order}, random);
  return order;
}

/// Returns one of `parts` contiguous parts of `whole`, for a rank or a micro-batch; their sizes differ by at most one.
template <class T>
std::span<T> slice(std::span<T> whole, std::size_t part, std::size_t parts) {
  const std::size_t first = whole.size() * part / parts;
  return whole.subspan(first, whole.size() * (part + 1) / parts - first);
}

}  // namespace digits
