#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

// Operations on the elements of an array, as functions that run on a GPU, with a thread for each element, and on the
// host, where tests compare them with the host's network.
#ifdef __CUDACC__
#define DIGITS_ELEMENT __host__ __device__
#else
#define DIGITS_ELEMENT
#endif

namespace digits::cuda {

/// The sizes of a convolution's images and of its output.
struct window {
  std::size_t rows, columns, channels, out_rows, out_columns, stride;
};

/// Copies to `patches`, for each output pixel of each image, the 3 x 3 input pixels around it, with zero padding.
struct gather_patches {
  window w;
  const float* images;
  float* patches;

  DIGITS_ELEMENT void operator()(std::size_t i) const {
    const std::size_t channel = i % w.channels, tap = i / w.channels % 9, pixel = i / w.channels / 9;
    const std::size_t column = pixel % w.out_columns, row = pixel / w.out_columns % w.out_rows;
    const std::size_t image = pixel / w.out_columns / w.out_rows;
    // One more than the index of the pixel, since an unsigned number cannot be -1.
    const std::size_t y = row * w.stride + tap / 3, x = column * w.stride + tap % 3;
    const bool inside = y != 0 && y <= w.rows && x != 0 && x <= w.columns;
    patches[i] = inside ? images[((image * w.rows + y - 1) * w.columns + x - 1) * w.channels + channel] : 0.0F;
  }
};

/// Computes the gradient of gather_patches: sums, for each input pixel, the patches that contain it, in a fixed order.
struct gather_gradients {
  window w;
  const float* patches;
  float* images;

  DIGITS_ELEMENT void operator()(std::size_t i) const {
    const std::size_t channel = i % w.channels, x = i / w.channels % w.columns;
    const std::size_t y = i / w.channels / w.columns % w.rows, image = i / w.channels / w.columns / w.rows;
    float sum = 0;
    for (std::size_t tap = 9; tap-- > 0;) {  // earlier patches first
      if (y + 1 < tap / 3 || x + 1 < tap % 3) continue;
      const std::size_t down = y + 1 - tap / 3, right = x + 1 - tap % 3;
      if (down % w.stride != 0 || right % w.stride != 0) continue;
      const std::size_t row = down / w.stride, column = right / w.stride;
      if (row >= w.out_rows || column >= w.out_columns) continue;
      sum += patches[(((image * w.out_rows + row) * w.out_columns + column) * 9 + tap) * w.channels + channel];
    }
    images[i] = sum;
  }
};

/// Keeps the largest of each 2 x 2 pixels, the first of equal ones, and its index.
struct pool {
  window w;
  const float* in;
  float* out;
  std::uint8_t* winners;

  DIGITS_ELEMENT std::size_t place(std::size_t i, std::size_t tap) const {
    const std::size_t channel = i % w.channels, pixel = i / w.channels;
    const std::size_t column = pixel % w.out_columns, row = pixel / w.out_columns % w.out_rows;
    const std::size_t image = pixel / w.out_columns / w.out_rows;
    return ((image * w.rows + 2 * row + tap / 2) * w.columns + 2 * column + tap % 2) * w.channels + channel;
  }
  DIGITS_ELEMENT void operator()(std::size_t i) const {
    float largest = in[place(i, 0)];
    std::uint8_t winner = 0;
    for (std::uint8_t tap = 1; tap < 4; ++tap) {
      const float value = in[place(i, tap)];
      winner = value > largest ? tap : winner;
      largest = value > largest ? value : largest;
    }
    out[i] = largest;
    winners[i] = winner;
  }
};
/// Computes the gradient of pool, into an array of zeros.
struct unpool {
  pool forward;
  const float* out_gradient;
  float* in_gradient;

  DIGITS_ELEMENT void operator()(std::size_t i) const {
    in_gradient[forward.place(i, forward.winners[i])] = out_gradient[i];
  }
};

/// Sets each row of a matrix to the bias, to which the product is added.
struct start_with_bias {
  const float* bias;
  std::size_t outputs;
  float* y;
  DIGITS_ELEMENT void operator()(std::size_t i) const { y[i] = bias[i % outputs]; }
};

struct rectify {
  float* values;
  DIGITS_ELEMENT void operator()(std::size_t i) const { values[i] = values[i] < 0 ? 0.0F : values[i]; }  // keeps NaN
};
struct rectify_gradient {
  const float* output;
  float* gradient;
  DIGITS_ELEMENT void operator()(std::size_t i) const { gradient[i] = output[i] > 0 ? gradient[i] : 0.0F; }
};

/// Computes the loss of each row, and replaces its logits by their gradient.
struct softmax_cross_entropy {
  static constexpr std::size_t classes = 10;
  float* logits;
  const std::uint8_t* labels;
  float* losses;

  DIGITS_ELEMENT void operator()(std::size_t i) const {
    float* const row = logits + i * classes;
    float largest = row[0];
    for (std::size_t c = 1; c < classes; ++c) largest = row[c] > largest ? row[c] : largest;
    const float of_label = row[labels[i]] - largest;
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += row[c] = expf(row[c] - largest);
    for (std::size_t c = 0; c < classes; ++c) row[c] /= sum;
    row[labels[i]] -= 1;
    losses[i] = logf(sum) - of_label;
  }
};

/// Updates parameters by SGD with momentum.
struct update {
  float rate, momentum;
  const float* gradients;
  float* velocity;
  float* parameters;
  DIGITS_ELEMENT void operator()(std::size_t i) const {
    velocity[i] = momentum * velocity[i] + gradients[i];
    parameters[i] -= rate * velocity[i];
  }
};

struct copy {
  const float* from;
  float* to;
  DIGITS_ELEMENT void operator()(std::size_t i) const { to[i] = from[i]; }
};

struct fill {
  float value;
  float* values;
  DIGITS_ELEMENT void operator()(std::size_t i) const { values[i] = value; }
};

}  // namespace digits::cuda
