#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

// Random passes, their exact results, and what reducers made of them.

namespace rounds {

using tutti::dtype;
using tutti::grad::contribution;
using tutti::grad::parameter_shape;

/// One pass of a world: what every rank contributes and in which order it marks its gradients.
struct round {
  int size = 1;
  std::vector<parameter_shape> shapes;
  tutti::grad::reducer_options options;
  contribution what = contribution::mean;
  std::vector<double> weights;                           // [rank]
  std::vector<std::vector<std::size_t>> order;           // [rank]
  std::vector<std::vector<std::vector<double>>> values;  // [rank][parameter][element]
};

/// How a double arrives when it has been stored as a gradient.
inline double stored(double x, dtype type) {
  return tutti::grad::visit_gradient(type, [&]<class T>() {
    if constexpr (sizeof(T) == 2)
      return static_cast<double>(T{static_cast<float>(x)});
    else
      return static_cast<double>(static_cast<T>(x));
  });
}

inline double epsilon(dtype type) {
  switch (type) {
    case dtype::f16:
      return 0x1p-10;
    case dtype::bf16:
      return 0x1p-7;
    case dtype::f32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

inline double random_weight(std::mt19937_64& random, contribution what) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return 1 + static_cast<double>(random() % (std::uint64_t{1} << 53));
    case 2:
      return 0.1 + static_cast<double>(random() % 1000) / 7;
    case 3:  // a sum that is divided by next to nothing need not fit its type
      return what == contribution::sum ? 3 : std::ldexp(1.0, -static_cast<int>(random() % 61));
    default:
      return static_cast<double>(1 + random() % 512);
  }
}

/// Of gradients and buckets that are `grow` times as large as a few lines.
inline round random_round(std::mt19937_64& random, int size, std::size_t grow = 1) {
  const dtype types[] = {dtype::f32, dtype::f64, dtype::bf16, dtype::f16};
  round r;
  r.size = size;
  const std::size_t kinds = 1 + random() % 4, first = random() % 4;
  r.shapes.resize(random() % 12);
  for (auto& p : r.shapes)
    p = {"", random() % 6 == 0 ? 0 : random() % (200 * grow), types[(first + random() % kinds) % 4]};
  r.options.limits = {1 + random() % (1500 * grow), 1 + random() % (3000 * grow)};
  r.what = random() % 4 == 0 ? contribution::sum : contribution::mean;
  const double common = random() % 3 == 0 ? random_weight(random, r.what) : 0;  // of all that have samples
  for (int rank = 0; rank < size; ++rank) {
    const double own = random_weight(random, r.what);
    r.weights.push_back(common > 0 && own > 0 ? common : own);
    auto& order = r.order.emplace_back(r.shapes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    auto& values = r.values.emplace_back();
    for (const auto& p : r.shapes) {
      auto& v = values.emplace_back(p.count);
      for (double& x : v) x = stored((static_cast<double>(random() % 2000001) - 1000000) / 9973, p.type);
    }
  }
  return r;
}

/// Every gradient's bytes, one after the other.
using image = std::vector<std::byte>;

/// Where a rank's gradients lie when they are marked.
enum class lie { in_the_arena, elsewhere, either };

/// Does the pass of one rank with a reducer made for the round; returns what its gradients are then. Of those that lie
/// elsewhere the arena holds nothing to begin with, and their memory nothing in the end.
template <class World, class Reducer>
image run(const round& r, World& world, Reducer& reducer, lie where = lie::in_the_arena) {
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto elsewhere = [&](std::size_t i) {
    return where == lie::elsewhere || (where == lie::either && (i * 7 + rank) % 3 != 0);
  };
  std::vector<std::vector<std::byte>> memory(r.shapes.size());
  auto pass = reducer.begin(r.weights[rank], r.what);
  for (const std::size_t i : r.order[rank]) {
    tutti::grad::visit_gradient(r.shapes[i].type, [&]<class T>() {
      const auto own = reducer.template gradient<T>(i);
      memory[i].resize(own.size_bytes());
      const auto g = elsewhere(i) ? std::span<T>{reinterpret_cast<T*>(memory[i].data()), own.size()} : own;
      std::fill_n(reinterpret_cast<std::byte*>(own.data()), own.size_bytes(), std::byte{0xff});  // NaN
      for (std::size_t e = 0; e < g.size(); ++e) {
        if constexpr (sizeof(T) == 2)
          g[e] = T{static_cast<float>(r.values[rank][i][e])};
        else
          g[e] = static_cast<T>(r.values[rank][i][e]);
      }
      if (elsewhere(i))
        pass.ready(i, std::span<const T>{g});
      else
        pass.ready(i);
    });
  }
  tutti::sync_wait(world, pass.finish());
  for (auto& m : memory) std::fill(m.begin(), m.end(), std::byte{0xff});
  image all;
  for (std::size_t i = 0; i < r.shapes.size(); ++i)
    tutti::grad::visit_gradient(r.shapes[i].type, [&]<class T>() {
      const auto bytes = std::as_bytes(reducer.template gradient<T>(i));
      all.insert(all.end(), bytes.begin(), bytes.end());
    });
  return all;
}

/// Compares with the weighted mean in long double. Empty, or what is wrong: an element may be off by one ulp for each
/// rank, where ulps are those of the sum of magnitudes.
inline std::string complaint(const round& r, const image& result) {
  long double total = 0;
  for (const double w : r.weights) total += w;
  std::size_t at = 0;
  for (std::size_t i = 0; i < r.shapes.size(); ++i) {
    const dtype type = r.shapes[i].type;
    for (std::size_t e = 0; e < r.shapes[i].count; ++e) {
      long double sum = 0, magnitude = 0;
      for (std::size_t rank = 0; rank < r.weights.size(); ++rank) {
        const double w = r.weights[rank];
        const long double term = static_cast<long double>(r.values[rank][i][e]) * (r.what == contribution::mean ? w
                                                                                   : w > 0                      ? 1
                                                                                                                : 0);
        sum += term;
        magnitude += std::abs(term);
      }
      if (total > 0) sum /= total, magnitude /= total;
      const double got = tutti::grad::visit_gradient(type, [&]<class T>() {
        T x;
        std::memcpy(&x, result.data() + at, sizeof(T));
        at += sizeof(T);
        return static_cast<double>(x);
      });
      const double n = r.size, underflow = type == dtype::f16 ? 0x1p-23 : 0x1p-120;
      const long double allowed = n * epsilon(type) * magnitude * 1.01L + (n + 1) * underflow;
      if (!(std::abs(got - sum) <= allowed))
        return "parameter " + std::to_string(i) + " (" + std::string(name(type)) + ") element " + std::to_string(e) +
               " is " + std::to_string(got) + ", not " + std::to_string(static_cast<double>(sum));
    }
  }
  return at == result.size() ? "" : "the result has another size";
}

}  // namespace rounds
