#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/train/batch_norm.hpp>
#include <vector>

// Batch normalisation by one process on the whole batch, and by ranks that have parts of it.

namespace whole_batch {

using tutti::train::batch_norm;
using values = std::vector<double>;

inline constexpr std::size_t channels = 3, pixels = 4, sample = channels * pixels;
inline const values weight{1.5, -0.5, 2}, bias{0.25, 1, -3};

/// Batch normalisation by its definition, of a whole batch.
struct reference {
  values y, dx, dweight = values(channels), dbias = values(channels), mean = values(channels),
                variance = values(channels);

  reference(const values& x, const values& dy) : y(x.size()), dx(x.size()) {
    const auto n = static_cast<double>(x.size() / channels);
    const auto in = [](std::size_t i, std::size_t c) { return i / pixels % channels == c; };
    for (std::size_t c = 0; c < channels; ++c) {
      double m = 0, v = 0;
      for (std::size_t i = 0; i < x.size(); ++i) m += in(i, c) ? x[i] / n : 0;
      for (std::size_t i = 0; i < x.size(); ++i) v += in(i, c) ? (x[i] - m) * (x[i] - m) / n : 0;
      const double s = std::sqrt(v + 1e-5);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!in(i, c)) continue;
        const double hat = (x[i] - m) / s;
        y[i] = hat * weight[c] + bias[c];
        dweight[c] += dy[i] * hat;
        dbias[c] += dy[i];
      }
      for (std::size_t i = 0; i < x.size(); ++i)
        if (in(i, c)) dx[i] = weight[c] / s * (dy[i] - dbias[c] / n - (x[i] - m) / s * dweight[c] / n);
      mean[c] = m;
      variance[c] = v;
    }
  }
};

inline values random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  values v(n);
  for (double& x : v) x = static_cast<double>(random() % 2001) / 100 - 5;
  return v;
}

inline void check_close(std::span<const double> got, std::span<const double> expected, double within) {
  if (got.size() != expected.size()) throw std::runtime_error("size");
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - expected[i]) <= within * (1 + std::abs(expected[i])))) throw std::runtime_error("value");
}

/// Rank r has samples [cuts[r], cuts[r + 1]) of the batch.
template <class World>
void check_rank(World& world, const std::vector<std::size_t>& cuts, const values& x, const values& dy) {
  const reference whole{x, dy};
  const auto r = static_cast<std::size_t>(world.rank());
  const std::size_t from = cuts[r] * sample, size = (cuts[r + 1] - cuts[r]) * sample;
  const auto part = [&](const values& v) { return std::span<const double>{v}.subspan(from, size); };
  batch_norm bn{world, channels};
  values y(size), dx(size), dweight(channels), dbias(channels);
  for (int step = 0; step < 2; ++step) {
    tutti::sync_wait(world, bn.template forward<double>(part(x), y, pixels, weight, bias));
    tutti::sync_wait(world, bn.template backward<double>(part(x), part(dy), dx, pixels, weight, dweight, dbias));
  }
  check_close(y, part(whole.y), 1e-12);
  check_close(dx, part(whole.dx), 1e-12);
  world.all_reduce(dweight).wait();
  world.all_reduce(dbias).wait();
  check_close(dweight, whole.dweight, 1e-12);
  check_close(dbias, whole.dbias, 1e-12);
  const auto n = static_cast<double>(x.size() / channels);
  for (std::size_t c = 0; c < channels; ++c) {
    if (bn.total(c).count != n) throw std::runtime_error("count");
    const double v = whole.variance[c] * n / (n - 1);
    check_close(bn.running_mean().subspan(c, 1), values{0.19 * whole.mean[c]}, 1e-12);
    check_close(bn.running_variance().subspan(c, 1), values{0.81 + 0.19 * v}, 1e-12);
  }
  std::vector<values> all(static_cast<std::size_t>(world.size()));
  const double mine = bn.total(0).squares;
  values everyone(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span{&mine, 1}, everyone).wait();
  if (std::count(everyone.begin(), everyone.end(), mine) != world.size()) throw std::runtime_error("bits");
}
}  // namespace whole_batch
