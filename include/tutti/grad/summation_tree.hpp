#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/config.hpp>

namespace tutti::grad {

/// A node of the binary tree over 0, 1, 2, ...: the sum of the numbers [index << level, (index + 1) << level).
struct tree_node {
  std::size_t level = 0, index = 0;

  /// Returns true if `right` is the other half of the node above.
  [[nodiscard]] constexpr bool completed_by(const tree_node& right) const noexcept {
    return level == right.level && index % 2 == 0 && right.index == index + 1;
  }
  [[nodiscard]] constexpr tree_node above() const noexcept { return {level + 1, index / 2}; }

  friend constexpr bool operator==(const tree_node&, const tree_node&) = default;
};

/// A contiguous range of numbers.
struct number_range {
  std::size_t first = 0, end = 0;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - first; }
  [[nodiscard]] constexpr bool empty() const noexcept { return first == end; }
};

/// Returns the range of one of `parts` equal parts; sizes differ by at most one.
[[nodiscard]] constexpr number_range part_of(std::size_t count, std::size_t part, std::size_t parts) noexcept {
  return {count * part / parts, count * (part + 1) / parts};
}

/// Appends a node to the nodes of smaller numbers, and joins pairs into the nodes above. For each pair it calls
/// `join(left, right)` with their indexes in the list; the sum must be stored at `left`. The part of the new node that
/// is joined so far is at the list's end.
template <class Join>
void append(std::vector<tree_node>& nodes, tree_node last, Join join) {
  std::size_t at = nodes.size();
  while (!nodes.empty() && nodes.back().completed_by(last)) {
    join(nodes.size() - 1, at);
    at = nodes.size() - 1;
    last = last.above();
    nodes.pop_back();
  }
  nodes.push_back(last);
}

/// Returns the nodes that cover a range of numbers, in order: as few as possible, at most 2 log2(n + 1) for n numbers.
[[nodiscard]] inline std::vector<tree_node> nodes_of(number_range numbers) {
  std::vector<tree_node> nodes;
  for (std::size_t i = numbers.first; i < numbers.end; ++i) append(nodes, {0, i}, [](std::size_t, std::size_t) {});
  return nodes;
}

}  // namespace tutti::grad
