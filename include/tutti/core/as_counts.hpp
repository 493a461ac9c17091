#pragma once
#include <concepts>
#include <cstddef>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti {

/// Returns counts or offsets of another integer type, such as those of a C interface, as a layout takes them: `const
/// auto counts = tutti::as_counts(std::span{lengths, n}); world.all_gather_v(in, out, counts)`. They must be kept until
/// the operation has ended, and can be used by all calls with the same blocks. Throws usage_error for a number below 0.
template <std::ranges::input_range Numbers>
  requires std::integral<std::ranges::range_value_t<Numbers>>
[[nodiscard]] std::vector<std::size_t> as_counts(const Numbers& numbers) {
  std::vector<std::size_t> all;
  if constexpr (std::ranges::sized_range<const Numbers>) all.reserve(std::ranges::size(numbers));
  for (const auto n : numbers) {
    if (!std::in_range<std::size_t>(n))
      throw usage_error("as_counts: number " + std::to_string(all.size()) + " is " + std::to_string(n) +
                        "; counts and offsets are 0 or more");
    all.push_back(static_cast<std::size_t>(n));
  }
  return all;
}

}  // namespace tutti
