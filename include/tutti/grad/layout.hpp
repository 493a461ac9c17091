#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/marks.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/usage.hpp>

namespace tutti::grad::detail {

/// The plan of a reducer: with room behind the last bucket for the map of what is used. usage_error for a gradient that
/// has no mean, and options that no plan can follow.
[[nodiscard]] inline plan layout_of(const marks& all, const reducer_options& options, std::span<const int> arrival) {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const dtype type = all.shapes()[i].type; !has_mean(type))
      throw usage_error("reducer: " + all.label(i) + " is " + std::string(name(type)) +
                        ", which cannot be averaged; use float16, bfloat16, float or double");
  if (options.replan == replan::on_drift && options.drift_passes == 0)
    throw usage_error("reducer: replan::on_drift after drift_passes = 0; give at least 1");
  plan p = make_plan(all.shapes(), options.limits, arrival, options.delayed);
  if (p.buckets.empty()) return p;
  bucket& last = p.buckets.back();
  const std::size_t map = usage(all.size(), options.unused, options.graph).map_count() * size_of(last.type);
  last.tail_lines += (map + slot_alignment - 1) / slot_alignment;
  return p;
}

/// Its memory.
template <class Comm>
[[nodiscard]] arena make_arena(Comm& world, const marks& all, plan p) {
  return arena(all.shapes(), std::move(p), [&](std::size_t n) { return world.template allocate<std::byte>(n); });
}

}  // namespace tutti::grad::detail
