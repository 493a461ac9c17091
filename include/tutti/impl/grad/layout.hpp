#pragma once
#include <cstddef>
#include <span>
#include <string>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/pass/usage.hpp>

namespace tutti::grad::detail {

TUTTI_DECL plan layout_of(const ready_tracker& all, const reducer_options& options, std::span<const int> ready_order,
                          const caller_layout& own) {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const dtype type = all.shapes()[i].type; !has_mean(type))
      throw usage_error("reducer: " + all.label(i) + " is " + std::string(name(type)) +
                        ", which cannot be averaged; use float16, bfloat16, float or double");
  if (options.replan == replan::on_drift && options.drift_passes == 0)
    throw usage_error("reducer: replan::on_drift after drift_passes = 0; give at least 1");
  plan p = make_plan(all.shapes(), options.limits, ready_order, options.delayed, own);
  if (p.buckets.empty()) return p;
  bucket& last = p.buckets.back();
  const std::size_t map = usage(all.size(), options.unused, options.graph).map_count() * size_of(last.type);
  last.tail_lines += (map + slot_alignment - 1) / slot_alignment;
  return p;
}

}  // namespace tutti::grad::detail
