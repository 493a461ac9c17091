#pragma once
#include <tutti/core/options.hpp>

namespace tutti::algo {

/// Progress of a call inside the function that issues it, before there is a coroutine: not begun, posted, or complete.
enum class progress : char { nothing, posted, all };

/// Decision about one call, made once while it is issued: the algorithm, `automatic` until it is chosen or if the
/// collective has a single implementation; and the progress that the fast path has made with it.
struct decision {
  algorithm via = algorithm::automatic;
  progress so_far = progress::nothing;

  [[nodiscard]] constexpr bool is_begun() const noexcept { return so_far != progress::nothing; }
  [[nodiscard]] constexpr bool is_complete() const noexcept { return so_far == progress::all; }
};

}  // namespace tutti::algo
