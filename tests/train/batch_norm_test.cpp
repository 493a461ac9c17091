#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/batch_norm.hpp>
#include <vector>

namespace {
using tutti::train::batch_norm;
using values = std::vector<double>;
using world_t = tutti::communicator<tutti::threads>;

constexpr std::size_t channels = 3, pixels = 4, sample = channels * pixels;
const values weight{1.5, -0.5, 2}, bias{0.25, 1, -3};

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

values random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  values v(n);
  for (double& x : v) x = static_cast<double>(random() % 2001) / 100 - 5;
  return v;
}

void check_close(std::span<const double> got, std::span<const double> expected, double within) {
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
}  // namespace

TEST_CASE("batch_norm: that of one process on the whole batch, with uneven and empty ranks") {
  const auto x = random_values(9 * sample, 1), dy = random_values(9 * sample, 2);
  for (const std::vector<std::size_t>& cuts : std::vector<std::vector<std::size_t>>{
           {0, 9}, {0, 3, 9}, {0, 0, 9}, {0, 9, 9}, {0, 2, 2, 5, 9}, {0, 0, 0, 1, 9, 9}})
    tutti::run_threads(static_cast<int>(cuts.size()) - 1, [&](world_t& world) { check_rank(world, cuts, x, dy); });
}

TEST_CASE("batch_norm: on many schedules; a lost rank is an error, not a hang") {
  const auto x = random_values(5 * sample, 3), dy = random_values(5 * sample, 4);
  int losses = 0;
  tutti::for_seeds(1, 30, [&](std::uint64_t seed) {
    tutti::run_sim(3, seed, [&](auto& world) { check_rank(world, {0, 1, 1, 5}, x, dy); });
    try {
      tutti::run_sim(3, {.seed = seed, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 1 + seed % 15},
                     [&](auto& world) { check_rank(world, {0, 1, 1, 5}, x, dy); });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
  });
  CHECK(losses > 10);
}

TEST_CASE("batch_norm: float is rounded once; evaluation takes the running statistics; channels may be innermost") {
  tutti::run_threads(2, [](world_t& world) {
    batch_norm bn{world, 2};
    const std::vector<float> x{1, 10, 3, 30}, one{1, 1}, zero{0, 0};  // two pixels of two channels, innermost
    std::vector<float> y(4);
    tutti::sync_wait(world, bn.forward<float>(x, y, 1, one, zero));
    if (bn.total(0).mean != 2 || bn.total(1).mean != 20 || bn.total(0).count != 4) throw std::runtime_error("moments");
    if (y[0] != static_cast<float>(-1 / std::sqrt(1 + 1e-5)) || y[2] != -y[0]) throw std::runtime_error("y");
    bn.running_mean()[0] = 1;
    bn.running_variance()[0] = 4 - 1e-5;
    bn.evaluate<float>(x, y, 1, one, zero);
    if (y[0] != 0 || std::abs(y[2] - 1) > 1e-6f) throw std::runtime_error("evaluate");
  });
}

TEST_CASE("batch_norm: no samples anywhere, or one value, change no running statistics") {
  tutti::run_threads(2, [](world_t& world) {
    batch_norm bn{world, 1};
    const values one{1}, five{5};
    values y(world.rank() == 0 ? 1 : 0), none;
    tutti::sync_wait(world, bn.forward<double>({}, none, 1, one, one));
    const auto x = world.rank() == 0 ? std::span<const double>{five} : std::span<const double>{};
    tutti::sync_wait(world, bn.forward<double>(x, y, 1, one, one));
    if (!y.empty() && y[0] != 1) throw std::runtime_error("y");
    if (bn.running_mean()[0] != 0 || bn.running_variance()[0] != 1) throw std::runtime_error("running");
  });
}

TEST_CASE("batch_norm: spans that do not fit are refused before anything is sent") {
  tutti::run_threads(1, [](world_t& world) {
    CHECK_THROWS_AS(batch_norm(world, 0), tutti::usage_error);
    batch_norm bn{world, 2};
    values x(6), y(6), w(2);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, y, 2, w, w)), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, y, 0, w, w)), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, std::span{y}.first(2), 1, w, w)), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, y, 3, w, std::span{w}.first(1))), tutti::usage_error);
  });
}
