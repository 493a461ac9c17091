#include "digits/batch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "digits/dataset.hpp"

TEST_CASE("digits batch: an epoch visits every image once, in an order of its own") {
  const auto order = digits::epoch_order(100, 1, 0);
  auto sorted = order;
  std::ranges::sort(sorted);
  std::vector<std::uint32_t> all(100);
  std::iota(all.begin(), all.end(), 0u);
  CHECK(sorted == all);
  CHECK(order != all);
  CHECK(order == digits::epoch_order(100, 1, 0));
  CHECK(order != digits::epoch_order(100, 1, 1));
  CHECK(digits::epoch_order(100, 1, 1) != digits::epoch_order(100, 2, 0));
  CHECK(digits::epoch_order(0, 1, 0).empty());
}

TEST_CASE("digits batch: slices are contiguous, cover everything and differ by at most one") {
  for (const std::size_t count : {0u, 1u, 3u, 29u, 64u})
    for (const std::size_t parts : {1u, 2u, 3u, 4u, 7u}) {
      std::vector<int> values(count);
      std::size_t next = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const auto own = digits::slice(std::span{values}, part, parts);
        CHECK(own.data() == values.data() + next);
        CHECK(own.size() >= count / parts);
        CHECK(own.size() <= (count + parts - 1) / parts);
        next += own.size();
      }
      CHECK(next == count);
    }
}

TEST_CASE("digits batch: images are gathered by number, pixels scaled to one") {
  const digits::dataset data{
      .shape = {1, 2, 1}, .largest_pixel = 16, .pixels = {0, 16, 8, 4, 2, 1}, .labels = {5, 6, 7}};
  const std::vector<std::uint32_t> numbers{2, 0};
  const auto images = digits::gather<double>(data, numbers);
  CHECK(images.size() == 2);
  CHECK(images.pixels == std::vector<double>{0.125, 0.0625, 0, 1});
  CHECK(images.labels == std::vector<std::uint8_t>{7, 5});
}

TEST_CASE("digits dataset: a fifth is held out, and nothing is in both parts") {
  digits::dataset data{.shape = {1, 1, 1}, .largest_pixel = 255, .pixels = {}, .labels = {}};
  for (std::uint8_t i = 0; i < 21; ++i) {
    data.pixels.push_back(i);
    data.labels.push_back(i % 10);
  }
  const auto split = digits::hold_out_fifth(data);
  CHECK(split.train.size() == 16);
  CHECK(split.test.size() == 5);
  auto together = split.train.pixels;
  together.insert(together.end(), split.test.pixels.begin(), split.test.pixels.end());
  std::ranges::sort(together);
  CHECK(together == data.pixels);
  for (std::size_t i = 0; i < 16; ++i) CHECK(split.train.labels[i] == split.train.pixels[i] % 10);
  CHECK_THROWS_AS(digits::hold_out_fifth({.shape = {1, 1, 1}, .largest_pixel = 1, .pixels = {0}, .labels = {0}}),
                  std::runtime_error);
}
