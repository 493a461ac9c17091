#include "digits/convolution.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "digits/max_pool.hpp"

namespace {

std::vector<double> pattern(std::size_t count, int factor) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i) * factor % 11 - 5;
  return values;
}

// The definition: a sum over the 3 x 3 pixels around each stride-th pixel, those outside being zero.
std::vector<double> convolve(std::span<const double> image, digits::image_shape shape, std::span<const double> weight,
                             std::span<const double> bias, int stride) {
  const int rows = static_cast<int>(shape.rows);
  const int columns = static_cast<int>(shape.columns);
  std::vector<double> result;
  for (int row = 0; row < rows; row += stride)
    for (int column = 0; column < columns; column += stride)
      for (std::size_t out = 0; out < bias.size(); ++out) {
        double sum = bias[out];
        for (int dy = -1; dy <= 1; ++dy)
          for (int dx = -1; dx <= 1; ++dx)
            for (std::size_t in = 0; in < shape.channels; ++in) {
              const int y = row + dy;
              const int x = column + dx;
              if (y < 0 || y >= rows || x < 0 || x >= columns) continue;
              const auto tap = static_cast<std::size_t>((dy + 1) * 3 + dx + 1);
              sum += image[static_cast<std::size_t>(y * columns + x) * shape.channels + in] *
                     weight[(tap * shape.channels + in) * bias.size() + out];
            }
        result.push_back(sum);
      }
  return result;
}

}  // namespace

TEST_CASE("digits convolution: two images, any size, stride and number of channels") {
  for (const std::size_t rows : {1u, 2u, 5u})
    for (const std::size_t columns : {1u, 4u, 7u})
      for (const int stride : {1, 2})
        for (const std::size_t channels : {1u, 3u}) {
          const digits::image_shape shape{rows, columns, channels};
          digits::convolution<double> layer{shape, 5, static_cast<std::size_t>(stride)};
          const auto images = pattern(2 * shape.size(), 7);
          const auto weight = pattern(layer.weight_count(), 3);
          const auto bias = pattern(5, 2);
          const auto image = [&](std::size_t i) { return std::span{images}.subspan(i * shape.size(), shape.size()); };
          auto expected = convolve(image(0), shape, weight, bias, stride);
          const auto second = convolve(image(1), shape, weight, bias, stride);
          expected.insert(expected.end(), second.begin(), second.end());

          CHECK(2 * layer.output().size() == expected.size());
          std::vector<double> found(expected.size());
          layer.forward(weight, bias, images, found);
          CHECK(found == expected);
        }
}

TEST_CASE("digits max_pool: the largest of four pixels passes, and its gradient goes back to it alone") {
  digits::max_pool<double> pool{{3, 4, 2}};  // the third row is dropped
  CHECK(pool.output() == digits::image_shape{1, 2, 2});
  const std::vector<double> image{1, 8, 2, 7, 0, -1, 0, -2,  //
                                  3, 6, 4, 5, 0, -3, 0, -4,  //
                                  9, 9, 9, 9, 9, 9,  9, 9};
  auto images = image;
  images.insert(images.end(), image.begin(), image.end());
  std::vector<double> largest(8);
  pool.forward(images, largest);
  CHECK(largest == std::vector<double>{4, 8, 0, -1, 4, 8, 0, -1});

  std::vector<double> back(images.size(), 7.0);
  pool.input_gradient(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, back);
  const std::vector<double> expected{0, 2, 0, 0, 3, 4, 0, 0,  //
                                     0, 0, 1, 0, 0, 0, 0, 0,  //
                                     0, 0, 0, 0, 0, 0, 0, 0,  //
                                     0, 6, 0, 0, 7, 8, 0, 0,  //
                                     0, 0, 5, 0, 0, 0, 0, 0,  //
                                     0, 0, 0, 0, 0, 0, 0, 0};
  CHECK(back == expected);
}
