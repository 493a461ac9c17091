#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/adasum.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/grad/reproducible.hpp>
#include <utility>
#include <vector>

// Every hook there is, in one world: for tests of worlds of any kind.

namespace all_hooks {

using namespace tutti::grad;

enum class kind { sum, divide_after, in_rank_order, bf16, f16, int8, low_rank, low_rank_bf16, tree };
inline constexpr std::array kinds{kind::sum,  kind::divide_after, kind::in_rank_order, kind::bf16, kind::f16,
                                  kind::int8, kind::low_rank,     kind::low_rank_bf16, kind::tree};

/// One of them but the default, chosen at run time, one reducer to compile instead of many: the reducer divides.
struct any_hook {
  template <class Comm>
  any_hook(const Comm& world, kind wanted, std::size_t shards) : which(wanted), tree{world, shards} {}

  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, bucket_view<T> b) {
    switch (which) {
      case kind::in_rank_order:
        return in_a_task(sum_hook{{.order = tutti::reduction_order::rank}}(world, b));
      case kind::bf16:
        return bf16(world, b);
      case kind::f16:
        return f16(world, b);
      case kind::int8:
        return int8(world, b);
      case kind::low_rank:
        return low(world, b);
      case kind::low_rank_bf16:
        return low_bf16(world, b);
      case kind::tree:
        return tree(world, b);
      default:
        return in_a_task(divide_after_hook{}(world, b));
    }
  }

  kind which;
  reproducible_hook tree;
  compress_hook<tutti::bfloat16> bf16;
  compress_hook<tutti::float16> f16;
  quantize_hook int8;
  powersgd_hook low{{.rank = 2, .start_pass = 1}};
  compress_hook<tutti::bfloat16, powersgd_hook> low_bf16{powersgd_hook{{.rank = 2, .start_pass = 1}}};
};

inline constexpr std::size_t shards = 6, rows = 24, columns = 40;

inline std::vector<parameter_shape> shapes() {
  return {{"w", rows * columns, tutti::dtype::f32, rows}, {"b", 70}, {"c", 300}};
}
/// Of a shard; that of w has rank 1, so that a low rank loses nothing.
inline float gradient(std::size_t shard, std::size_t parameter, std::size_t element) {
  const auto wave = [](std::size_t a, std::size_t b) { return std::sin(static_cast<float>(a * 7 + b * 13 + 1)); };
  const auto size = static_cast<float>(shard + 1) / 3;
  if (parameter == 0) return size * wave(element / columns, 1) * wave(element % columns, 2);
  return size * wave(element, shard + parameter);
}

/// What this rank holds: the sums over its shards, of which a tree keeps all but the last apart.
template <class World, class Reducer>
void fill(const World& world, Reducer& r, bool apart) {
  const auto mine = part_of(shards, static_cast<std::size_t>(world.rank()), static_cast<std::size_t>(world.size()));
  for (std::size_t i = 0; i < r.size(); ++i) {
    const auto g = r.template gradient<float>(i);
    std::fill(g.begin(), g.end(), 0.0f);
  }
  for (std::size_t s = mine.first; s < mine.end; ++s) {
    for (std::size_t i = 0; i < r.size(); ++i) {
      const auto g = r.template gradient<float>(i);
      for (std::size_t e = 0; e < g.size(); ++e) g[e] = gradient(s, i, e) + (apart ? 0 : g[e]);
    }
    if constexpr (requires { r.hook().tree; })
      if (apart && s + 1 < mine.end) r.hook().tree.keep(r);
  }
}
/// The passes mark gradients in another order on each rank where `shuffled`.
enum class ready_tracker { backwards, shuffled };
template <class World, class Reducer>
std::vector<float> passes(World& world, Reducer& r, bool apart, ready_tracker how = ready_tracker::backwards,
                          int count = 3) {
  const auto mine = part_of(shards, static_cast<std::size_t>(world.rank()), static_cast<std::size_t>(world.size()));
  for (int n = 0; n < count; ++n) {
    auto pass = r.begin(static_cast<double>(mine.size()), contribution::sum);
    fill(world, r, apart);
    const std::size_t turn = how == ready_tracker::shuffled ? static_cast<std::size_t>(world.rank() + n) : 0;
    for (std::size_t i = r.size(); i-- > 0;) pass.ready((i + turn) % r.size());
    tutti::sync_wait(world, pass.finish());
  }
  std::vector<float> all;
  for (std::size_t i = 0; i < r.size(); ++i) {
    const auto g = r.template gradient<float>(i);
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

template <class World, class Hook>
std::vector<float> mean_by(World& world, kind which, Hook hook, reducer_options how, ready_tracker order) {
  how.limits = {256, 256};  // three buckets
  reducer r{world, shapes(), how, std::move(hook)};
  const auto got = passes(world, r, which == kind::tree, order);
  const double allowed = which <= kind::in_rank_order || which == kind::tree ? 1e-6 : 0.03;
  std::size_t at = 0;
  for (std::size_t i = 0; i < r.size(); ++i)
    for (std::size_t e = 0; e < r.template gradient<float>(i).size(); ++e, ++at) {
      double expected = 0;
      for (std::size_t s = 0; s < shards; ++s) expected += static_cast<double>(gradient(s, i, e)) / shards;
      if (!(std::abs(static_cast<double>(got[at]) - expected) <= allowed))
        throw std::runtime_error("hook " + std::to_string(static_cast<int>(which)) + ": " + std::to_string(got[at]) +
                                 " where " + std::to_string(expected) + " is the mean");
    }
  return got;
}

/// The mean of all shards by one of the hooks, in a world of at most `shards` ranks. Throws where it is far off.
template <class World>
std::vector<float> mean(World& world, kind which, reducer_options how = {},
                        ready_tracker order = ready_tracker::backwards) {
  if (which == kind::sum) return mean_by(world, which, sum_hook{}, how, order);
  return mean_by(world, which, any_hook{world, which, shards}, how, order);
}

/// Hooks that take gradients as they are.
enum class unscaled { adasum, mean };

/// What one of them makes of the ranks' gradients.
template <class World>
std::vector<float> as_they_are(World& world, unscaled which, reducer_options how = {},
                               ready_tracker order = ready_tracker::backwards) {
  how.limits = {256, 256};  // three buckets
  const auto with = [&](auto hook) {
    reducer r{world, shapes(), how, std::move(hook)};
    return passes(world, r, false, order);
  };
  return which == unscaled::adasum ? with(adasum_hook{}) : with(mean_hook{});
}

/// The result of a hook, launched in the plan's order; and the same bits, or it throws, where buckets leave as they are
/// complete, which is in another order on each rank, under a bound and without one.
template <class Mean>
std::vector<float> in_any_order(Mean mean) {
  const std::vector<float> expected = mean(reducer_options{}, ready_tracker::backwards);
  for (const std::size_t bound : {std::size_t{0}, std::size_t{2}})
    if (mean(reducer_options{.order = launch_order::ready, .in_flight = bound}, ready_tracker::shuffled) != expected)
      throw std::runtime_error("other bits out of order");
  return expected;
}

}  // namespace all_hooks
