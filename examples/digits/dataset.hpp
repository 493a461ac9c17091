#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/random.hpp"
#include "digits/image_shape.hpp"

namespace digits {

/// The number of classes: ten digits, or ten kinds of clothes.
inline constexpr std::size_t class_count = 10;

/// Labelled grey images, one after another, each row by row.
struct dataset {
  image_shape shape;
  unsigned largest_pixel = 0;  // value of white: 16 or 255
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  std::size_t size() const { return labels.size(); }
};

/// A data set for training, and one for evaluation only.
struct split_dataset {
  dataset train;
  dataset test;
};

/// Copies images, by their indices, into another data set.
inline dataset subset(const dataset& data, std::span<const std::uint32_t> indices) {
  dataset result{.shape = data.shape, .largest_pixel = data.largest_pixel, .pixels = {}, .labels = {}};
  const std::size_t bytes = data.shape.size();
  result.pixels.reserve(indices.size() * bytes);
  for (const std::uint32_t index : indices) {
    const auto image = std::span{data.pixels}.subspan(index * bytes, bytes);
    result.pixels.insert(result.pixels.end(), image.begin(), image.end());
    result.labels.push_back(data.labels[index]);
  }
  return result;
}

/// Splits off a fifth of the images, rounded up, for evaluation: the same ones in every run, for any seed of training.
inline split_dataset hold_out_fifth(const dataset& all) {
  if (all.size() < 2) throw std::runtime_error{"a data set of " + std::to_string(all.size()) + " cannot be split"};
  std::vector<std::uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0u);
  common::random_source random{1998};
  common::shuffle(std::span{order}, random);
  const std::span<const std::uint32_t> shuffled{order};
  const std::size_t held_out = (all.size() + 4) / 5;
  return {.train = subset(all, shuffled.subspan(held_out)), .test = subset(all, shuffled.first(held_out))};
}

}  // namespace digits
