#pragma once
#include <cstddef>
#include <span>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/own_memory.hpp>
#include <tutti/grad/pass/ready_tracker.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>

namespace tutti::grad::detail {

/// Returns the plan of a reducer, with room behind the last bucket for the usage map. Throws usage_error for a gradient
/// type that has no mean, and for options that no plan can follow.
[[nodiscard]] TUTTI_DECL plan layout_of(const ready_tracker& all, const reducer_options& options,
                                        std::span<const int> ready_order, const caller_layout& own = {});

/// Allocates the memory of a plan that is not the caller's.
template <class Comm>
[[nodiscard]] arena make_arena(Comm& world, const ready_tracker& all, plan p, const own_memory& own) {
  return arena(all.shapes(), std::move(p), [&](std::size_t n) { return world.template allocate<std::byte>(n); }, own);
}

}  // namespace tutti::grad::detail

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/layout.hpp>
#endif
