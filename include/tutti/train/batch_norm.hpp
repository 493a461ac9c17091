#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/moments.hpp>

namespace tutti::train {

struct batch_norm_options {
  double epsilon = 1e-5;
  double momentum = 0.1;  ///< the weight of the newest batch in the running statistics
};

/// Batch normalisation over the batches of all ranks together, as torch's SyncBatchNorm. Collective: all ranks call
/// forward() and backward() in the same order; for groups, pass a split of the world. The communicator must outlive it.
///
/// Buffers have the shape [samples, channels, pixels]. For channels-last data, pass each pixel as a sample and 1 for
/// `pixels`. Ranks may have different numbers of samples, or none. Computes in double; all ranks get equal statistics.
/// One thread at a time; buffers must stay valid until the task has ended. Allocates no buffers after the constructor.
/// Errors: usage_error for sizes that do not fit; else as of the collective. Cost: one all_gather of 2C + 1 doubles in
/// forward(), one all_reduce of 2C doubles in backward(), for C channels.
template <class Comm>
class batch_norm {
 public:
  batch_norm(Comm& world, std::size_t channels, batch_norm_options options = {})
      : world_(&world),
        channels_(channels),
        options_(options),
        total_(channels),
        inverse_(channels),
        mine_(2 * channels + 1),
        all_(mine_.size() * static_cast<std::size_t>(world.size())),
        sums_(2 * channels),
        running_mean_(channels, 0.0),
        running_variance_(channels, 1.0) {
    if (channels == 0) throw usage_error("batch_norm: give at least one channel");
  }

  /// Computes y = (x - mean) / sqrt(variance + epsilon) * weight + bias with the mean and variance of all ranks' x.
  /// Collective. y may be x, but backward() needs x.
  template <gradient_element T>
  task<> forward(std::span<const T> x, std::span<T> y, std::size_t pixels, std::span<const T> weight,
                 std::span<const T> bias) {
    check("forward", x.size(), y.size(), pixels, weight.size(), bias.size());
    describe(x, pixels);
    co_await world_->all_gather(mine_, all_);
    learn();
    apply(
        x, y, pixels, weight, bias, [this](std::size_t c) { return total_[c].mean; },
        [this](std::size_t c) { return inverse_[c]; });
  }

  /// Computes the same with the running statistics, for evaluation. Not collective.
  template <gradient_element T>
  void evaluate(std::span<const T> x, std::span<T> y, std::size_t pixels, std::span<const T> weight,
                std::span<const T> bias) const {
    check("evaluate", x.size(), y.size(), pixels, weight.size(), bias.size());
    apply(
        x, y, pixels, weight, bias, [this](std::size_t c) { return running_mean_[c]; },
        [this](std::size_t c) { return 1 / std::sqrt(running_variance_[c] + options_.epsilon); });
  }

  /// Computes dx from dy, after forward() of the same x. Collective. The loss is the sum of the ranks' losses. Writes
  /// this rank's own sums to dweight and dbias, which must be reduced as other gradients are. dx may be dy.
  template <gradient_element T>
  task<> backward(std::span<const T> x, std::span<const T> dy, std::span<T> dx, std::size_t pixels,
                  std::span<const T> weight, std::span<T> dweight, std::span<T> dbias) {
    check("backward", x.size(), dy.size(), pixels, weight.size(), dweight.size());
    check("backward", x.size(), dx.size(), pixels, weight.size(), dbias.size());
    std::fill(sums_.begin(), sums_.end(), 0.0);
    each_row(x.size(), pixels, [&](std::size_t c, std::size_t at) {
      for (std::size_t i = at; i < at + pixels; ++i) {
        const auto d = static_cast<double>(dy[i]);
        sums_[c] += d;
        sums_[channels_ + c] += d * (static_cast<double>(x[i]) - total_[c].mean);
      }
    });
    for (std::size_t c = 0; c < channels_; ++c) {
      dbias[c] = grad::rounded<T>(sums_[c]);
      dweight[c] = grad::rounded<T>(sums_[channels_ + c] * inverse_[c]);
    }
    co_await world_->all_reduce(sums_, sum);
    each_row(x.size(), pixels, [&](std::size_t c, std::size_t at) {
      const double n = total_[c].count, mean_dy = sums_[c] / n;
      const double slope = sums_[channels_ + c] / n * inverse_[c] * inverse_[c];
      const double by = static_cast<double>(weight[c]) * inverse_[c];
      for (std::size_t i = at; i < at + pixels; ++i)
        dx[i] = grad::rounded<T>(
            (static_cast<double>(dy[i]) - mean_dy - (static_cast<double>(x[i]) - total_[c].mean) * slope) * by);
    });
  }

  [[nodiscard]] std::size_t channels() const noexcept { return channels_; }
  /// Returns the moments of a channel over all ranks in the last forward().
  [[nodiscard]] const moments& total(std::size_t channel) const noexcept { return total_[channel]; }
  /// Return the running statistics, one number for each channel, for evaluation and checkpoints; 0 and 1 at first. The
  /// variance is the unbiased one, as in torch. A batch with fewer than two values per channel does not change them.
  [[nodiscard]] std::span<double> running_mean() noexcept { return running_mean_; }
  [[nodiscard]] std::span<double> running_variance() noexcept { return running_variance_; }

 private:
  void check(const char* call, std::size_t in, std::size_t out, std::size_t pixels, std::size_t a,
             std::size_t b) const {
    if (in != out || pixels == 0 || in % (channels_ * pixels) != 0 || a != channels_ || b != channels_)
      throw usage_error("batch_norm: " + std::string(call) + " of " + std::to_string(in) + " and " +
                        std::to_string(out) + " values, " + std::to_string(a) + " and " + std::to_string(b) +
                        " parameters with " + std::to_string(channels_) + " channels of " + std::to_string(pixels) +
                        " pixels; give whole samples, and one weight and one bias for each channel");
  }

  // Calls f(channel, index of the first pixel) for every row of pixels.
  template <class F>
  void each_row(std::size_t size, std::size_t pixels, F f) const {
    for (std::size_t at = 0, c = 0; at < size; at += pixels, c = c + 1 == channels_ ? 0 : c + 1) f(c, at);
  }

  // Takes two passes, as sums of squared distances from the known mean do not cancel.
  template <class T>
  void describe(std::span<const T> x, std::size_t pixels) {
    std::fill(mine_.begin(), mine_.end(), 0.0);
    const double count = static_cast<double>(x.size()) / static_cast<double>(channels_);
    const auto means = std::span{mine_}.first(channels_), squares = std::span{mine_}.subspan(channels_, channels_);
    mine_.back() = count;
    each_row(x.size(), pixels, [&](std::size_t c, std::size_t at) {
      for (const T v : x.subspan(at, pixels)) means[c] += static_cast<double>(v);
    });
    if (count != 0)
      for (double& m : means) m /= count;
    each_row(x.size(), pixels, [&](std::size_t c, std::size_t at) {
      for (const T v : x.subspan(at, pixels)) {
        const double d = static_cast<double>(v) - means[c];
        squares[c] += d * d;
      }
    });
  }

  void learn() {
    for (std::size_t c = 0; c < channels_; ++c) {
      moments m;
      for (std::size_t at = 0; at < all_.size(); at += mine_.size())  // in rank order, for equal bits on all ranks
        m = merged(m, {all_[at + mine_.size() - 1], all_[at + c], all_[at + channels_ + c]});
      total_[c] = m;
      inverse_[c] = m.count > 0 ? 1 / std::sqrt(m.variance() + options_.epsilon) : 0;
      if (m.count <= 1) continue;
      running_mean_[c] += options_.momentum * (m.mean - running_mean_[c]);
      running_variance_[c] += options_.momentum * (m.unbiased_variance() - running_variance_[c]);
    }
  }

  template <class T, class Mean, class Inverse>
  void apply(std::span<const T> x, std::span<T> y, std::size_t pixels, std::span<const T> weight,
             std::span<const T> bias, Mean mean_of, Inverse inverse_of) const {
    each_row(x.size(), pixels, [&](std::size_t c, std::size_t at) {
      const double m = mean_of(c), by = inverse_of(c) * static_cast<double>(weight[c]);
      const auto offset = static_cast<double>(bias[c]);
      for (std::size_t i = at; i < at + pixels; ++i)
        y[i] = grad::rounded<T>((static_cast<double>(x[i]) - m) * by + offset);
    });
  }

  Comm* world_;
  std::size_t channels_;
  batch_norm_options options_;
  std::vector<moments> total_;
  std::vector<double> inverse_, mine_, all_, sums_;  // mine_: means, squares, count
  std::vector<double> running_mean_, running_variance_;
};

}  // namespace tutti::train
