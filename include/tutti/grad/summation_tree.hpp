#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/config.hpp>

namespace tutti::grad {

/// A node of the binary tree over 0, 1, 2, ...: the sum of the numbers [index << level, (index + 1) << level).
struct tree_node {
  std::size_t level = 0, index = 0;

  /// Whether `right` is the other half of the node above.
  [[nodiscard]] constexpr bool completed_by(const tree_node& right) const noexcept {
    return level == right.level && index % 2 == 0 && right.index == index + 1;
  }
  [[nodiscard]] constexpr tree_node above() const noexcept { return {level + 1, index / 2}; }

  friend constexpr bool operator==(const tree_node&, const tree_node&) = default;
};

/// Part of the numbers, in a row.
struct number_range {
  std::size_t first = 0, end = 0;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - first; }
  [[nodiscard]] constexpr bool empty() const noexcept { return first == end; }
};

/// What falls to one of `parts`: contiguous, sizes differ by at most one.
[[nodiscard]] constexpr number_range part_of(std::size_t count, std::size_t part, std::size_t parts) noexcept {
  return {count * part / parts, count * (part + 1) / parts};
}

/// Adds a node behind the nodes of smaller numbers. Where two become one, `join(left, right)` is called with their
/// places in the list, and the sum stays at `left`; what is so far joined of the new node is at the list's end.
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

/// The nodes of which a range of numbers consists, in order: as few as possible, at most 2 log2(n + 1) of n numbers.
[[nodiscard]] inline std::vector<tree_node> nodes_of(number_range numbers) {
  std::vector<tree_node> nodes;
  for (std::size_t i = numbers.first; i < numbers.end; ++i) append(nodes, {0, i}, [](std::size_t, std::size_t) {});
  return nodes;
}

}  // namespace tutti::grad
