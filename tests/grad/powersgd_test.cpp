#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/random_numbers.hpp"
#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using ranks::one_pass;
using tutti::dtype;
using tutti::grad::powersgd_hook;
using tutti::grad::powersgd_options;
using tutti::grad::reducer;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;
using matrix = std::vector<float>;

static_assert(tutti::grad::reduction_hook<powersgd_hook, world_t>);
static_assert(tutti::grad::reduction_hook<tutti::grad::compress_hook<tutti::bfloat16, powersgd_hook>, world_t>);

matrix random_matrix(std::size_t count, unsigned seed) { return random_numbers<float>(count, seed); }
/// The sum of `rank` outer products.
matrix of_rank(std::size_t rank, std::size_t rows, std::size_t columns, unsigned seed) {
  matrix m(rows * columns);
  for (std::size_t k = 0; k < rank; ++k) {
    const auto u = random_matrix(rows, seed + static_cast<unsigned>(k)),
               v = random_matrix(columns, 70 + seed + static_cast<unsigned>(k));
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) m[i * columns + j] += u[i] * v[j];
  }
  return m;
}

template <class Reducer>
double error(const Reducer& r, std::size_t i, const matrix& expected) {
  double worst = 0;
  tutti::grad::visit_gradient(r.layout().buckets[0].type, [&]<class T>() {
    const auto g = r.template gradient<T>(i);
    for (std::size_t e = 0; e < g.size(); ++e)
      worst = std::max(worst, std::abs(static_cast<double>(g[e]) - static_cast<double>(expected[e])));
  });
  return worst;
}

matrix mean_of(int n, const std::vector<matrix>& all) {
  matrix m(all[0].size());
  for (const auto& v : all)
    for (std::size_t e = 0; e < m.size(); ++e) m[e] += v[e] / static_cast<float>(n);
  return m;
}

}  // namespace

TEST_CASE("powersgd: gradients whose sum has that rank come through; vectors and small matrices are sent whole") {
  for (const int n : {1, 2, 3, 5})
    for (const dtype type : {dtype::f32, dtype::f64, dtype::bf16}) {
      const auto all = ranks::outcomes(n, [&](world_t& world) {
        const shapes list{{"w", 30 * 50, type, 30}, {"b", 50, type}, {"small", 9, type, 3}, {"v", 64 * 20, type, 64}};
        const auto exact = [&](int rank) {
          // The sum over the ranks has rank 2, whatever their number.
          matrix w = of_rank(2, 30, 50, 1), v = of_rank(1, 64, 20, 9);
          for (float& x : w) x *= static_cast<float>(rank + 1);
          return std::vector<matrix>{w, random_matrix(50, 20 + static_cast<unsigned>(rank)),
                                     random_matrix(9, 30 + static_cast<unsigned>(rank)), v};
        };
        reducer r{world, list, {}, powersgd_hook{{.rank = 2, .start_pass = 1}}};
        const double rounding = type == dtype::bf16 ? 0.06 * n : 1e-4 * n;
        for (int p = 0; p < 4; ++p) {
          one_pass(world, r, exact(world.rank()));
          expect(r.total_weight() == n, "weight");
          for (std::size_t i = 0; i < 4; ++i) {
            std::vector<matrix> theirs;
            for (int k = 0; k < n; ++k) theirs.push_back(exact(k)[i]);
            const double off = error(r, i, mean_of(n, theirs));
            expect(off <= rounding, "parameter " + std::to_string(i) + " off by " + std::to_string(off));
            tutti::grad::visit_gradient(type, [&]<class T>() {
              const auto g = r.template gradient<T>(i);
              std::vector<T> root(g.begin(), g.end());
              world.broadcast(root, 0).wait();
              expect(std::memcmp(root.data(), g.data(), g.size_bytes()) == 0, "bits");
            });
          }
        }
        const auto whole = r.hook().elements() / 4;  // of one pass
        const std::uint64_t sent = r.hook().travelling() - whole;
        expect(sent <= 3 * ((30 + 50 + 64 + 20) * 2 + 59 + 64 / tutti::size_of(type)), "what travels");
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

TEST_CASE("powersgd: what one pass leaves out comes with later ones; without feedback it does not") {
  for (const bool feedback : {true, false}) {
    const auto all = ranks::outcomes(3, [&](world_t& world) {
      const shapes list{{"w", 24 * 24, dtype::f32, 24}};
      const auto mine = [](int rank) { return random_matrix(24 * 24, 5 + static_cast<unsigned>(rank)); };
      std::vector<matrix> all_of_them;
      for (int k = 0; k < 3; ++k) all_of_them.push_back(mine(k));
      const matrix mean = mean_of(3, all_of_them);
      reducer r{world, list, {}, powersgd_hook{{.rank = 2, .start_pass = 0, .error_feedback = feedback}}};
      constexpr int passes = 200;
      std::vector<double> sums(mean.size());
      for (int p = 0; p < passes; ++p) {
        one_pass(world, r, {mine(world.rank())});
        for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += r.gradient<float>(0)[e];
      }
      double off = 0, size = 0;
      for (std::size_t e = 0; e < sums.size(); ++e) {
        off += std::pow(sums[e] / passes - static_cast<double>(mean[e]), 2);
        size += std::pow(static_cast<double>(mean[e]), 2);
      }
      const double relative = std::sqrt(off / size);
      expect(feedback ? relative < 0.1 : relative > 0.5, "relative error", relative);
    });
    for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  }
}

TEST_CASE("powersgd: infinities and NaNs arrive and are forgotten; zeros do not stop it") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"w", 30 * 20, dtype::f32, 30}};
    reducer r{world, list, {}, powersgd_hook{{.start_pass = 0}}};
    const matrix good = of_rank(1, 30, 20, 4);
    for (const float bad : {1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      matrix mine = good;
      if (world.rank() == 1) mine[17] *= bad;
      one_pass(world, r, {mine});
      bool finite = true;
      for (const float x : r.gradient<float>(0)) finite = finite && std::isfinite(x);
      expect(finite == (bad == 1.0f), "as bad as it was");
      one_pass(world, r, {matrix(600)});
      for (int p = 0; p < 2; ++p) one_pass(world, r, {good});
      expect(error(r, 0, good) < 1e-3, "good again");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("powersgd: a hook that is saved and loaded goes on with the same bits") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"w", 30 * 20, dtype::f32, 30}, {"v", 40 * 40, dtype::f32, 40}};
    const auto mine = [&](unsigned p) {
      const unsigned seed = 50 * p + static_cast<unsigned>(world.rank());
      return std::vector<matrix>{random_matrix(600, seed), random_matrix(1600, seed + 9)};
    };
    const powersgd_options options{.rank = 3, .start_pass = 2};
    reducer first{world, list, {.limits = {1, 1}}, powersgd_hook{options}};
    reducer second{world, list, {.limits = {1, 1}}, powersgd_hook{options}};
    for (unsigned p = 0; p < 4; ++p) one_pass(world, first, mine(p));
    const auto state = first.hook().save();
    second.hook().load(state);
    for (unsigned p = 4; p < 6; ++p) {
      one_pass(world, first, mine(p));
      one_pass(world, second, mine(p));
      for (std::size_t i = 0; i < 2; ++i) {
        const auto a = first.gradient<float>(i), b = second.gradient<float>(i);
        expect(std::memcmp(a.data(), b.data(), a.size_bytes()) == 0, "bits");
      }
    }
    const auto o = ranks::outcome_of([&] { second.hook().load(std::span{state}.first(state.size() - 1)); });
    expect(o.usage && o.says("damaged"), o.text);
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("powersgd: over another hook's narrow floats, and options that make no sense") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"w", 30 * 20, dtype::f32, 30}};
    reducer r{
        world, list, {}, tutti::grad::compress_hook<tutti::bfloat16, powersgd_hook>{powersgd_hook{{.start_pass = 0}}}};
    const matrix good = of_rank(1, 30, 20, 4);
    for (int p = 0; p < 3; ++p) one_pass(world, r, {good});
    expect(error(r, 0, good) < 0.02, "close");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  CHECK_THROWS_AS((powersgd_hook{{.rank = 0}}), tutti::usage_error);
  CHECK_THROWS_AS((powersgd_hook{{.least_ratio = 0}}), tutti::usage_error);
}

TEST_CASE("powersgd: ranks that load other states are told, not left with other bits") {
  const shapes list{{"w", 30 * 20, dtype::f32, 30}};
  std::vector<std::vector<std::byte>> saved(3);
  const powersgd_options options{.start_pass = 1};
  for (const int who : {0, 1, 2}) {
    const auto all = ranks::outcomes(3, [&](world_t& world) {
      const matrix mine = random_matrix(600, static_cast<unsigned>(world.rank()));
      reducer r{world, list, {}, powersgd_hook{options}};
      auto& state = saved[static_cast<std::size_t>(world.rank())];
      if (who == 0) {
        for (int p = 0; p < 3; ++p) one_pass(world, r, {mine});
        state = r.hook().save();
        const auto late = ranks::outcome_of([&] { r.hook().load(state); });
        expect(late.usage && late.says("before the first pass"), late.text);
        return;
      }
      if (world.rank() == who) r.hook().load(state);
      one_pass(world, r, {mine});
    });
    for (const auto& o : all) {
      if (who == 0) CHECK_MESSAGE(o.fine(), o.text);
      if (who != 0) CHECK_MESSAGE((o.failed == tutti::errc::mismatch && o.says("rank " + std::to_string(who))), o.text);
    }
  }
}

TEST_CASE("powersgd: when buckets change it forgets what it left out, not that it has started; so it does in a skip") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"w", 30 * 20, dtype::f32, 30}, {"v", 20 * 30, dtype::f32, 20}};
    reducer r{world, list, {.limits = {1, 1}}, powersgd_hook{{.start_pass = 2}}};
    const std::vector<matrix> mine{random_matrix(600, 3), random_matrix(600, 4)};
    const auto sent = [&](auto pass) {
      const auto before = r.hook().travelling();
      pass();
      return r.hook().travelling() - before;
    };
    for (int p = 0; p < 2; ++p) expect(sent([&] { one_pass(world, r, mine); }) > 1200, "whole");
    expect(sent([&] { one_pass(world, r, mine); }) < 200, "approximated");
    auto other = r.begin();
    for (std::size_t i = 0; i < 2; ++i) {
      std::copy(mine[i].begin(), mine[i].end(), r.gradient<float>(i).begin());
      other.ready(i);
    }
    (void)tutti::sync_wait(world, other.finish());
    expect(tutti::sync_wait(world, r.rebuild()), "the order differs");
    reducer loaded{world, list, {.limits = {1, 1}}, powersgd_hook{{.start_pass = 2}}};
    loaded.hook().load(r.hook().save());
    one_pass(world, loaded, mine);
    expect(loaded.hook().travelling() < 200, "and in a run that goes on from here");
    expect(sent([&] { one_pass(world, r, mine); }) < 200, "approximated still");
    // Zeros are zeros again: nothing of the pass before is left.
    auto skipped = r.begin();
    for (std::size_t i = 0; i < 2; ++i) std::copy(mine[i].begin(), mine[i].end(), r.gradient<float>(i).begin());
    if (world.rank() == 1) skipped.skip(tutti::grad::step::skip_overflow);
    if (world.rank() == 0)
      for (std::size_t i = 0; i < 2; ++i) skipped.ready(i);
    (void)tutti::sync_wait(world, skipped.finish());
    one_pass(world, r, {matrix(600), matrix(600)});
    for (const float x : r.gradient<float>(0)) expect(x == 0, "a rest of what was skipped");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}
