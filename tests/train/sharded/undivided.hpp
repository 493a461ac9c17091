#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tutti/grad/weight.hpp>
#include <vector>

// What ranks contribute to a step, and the step that is not divided among them.

namespace undivided {

/// Small whole numbers, whose weighted sums are exact whatever their order.
template <class T>
std::vector<T> gradients(std::size_t n, int rank, int step) {
  std::vector<T> g(n);
  for (std::size_t i = 0; i < n; ++i) g[i] = static_cast<T>((static_cast<int>(i) * 3 + rank * 5 + step * 7) % 13 - 6);
  return g;
}
inline double weight(int rank, int step) { return (rank + step) % 4; }

template <class T>
std::vector<T> start(std::size_t n) {
  std::vector<T> p(n);
  std::iota(p.begin(), p.end(), T(-3));
  return p;
}

/// One process with the weighted mean of all ranks' gradients; no step where all weights are 0.
template <class T, class Rule>
std::vector<T> steps(std::size_t n, int ranks, int count, const Rule& rule) {
  std::vector<T> p = start<T>(n), memory(n * Rule::slots);
  std::array<std::span<T>, Rule::slots> slots;
  for (std::size_t s = 0; s < Rule::slots; ++s) slots[s] = std::span{memory}.subspan(n * s, n);
  std::uint64_t taken = 0;
  for (int step = 1; step <= count; ++step) {
    std::vector<T> mean(n);
    double total = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto g = gradients<T>(n, r, step);
      for (std::size_t i = 0; i < n; ++i) mean[i] += static_cast<T>(weight(r, step)) * g[i];
      total += weight(r, step);
    }
    if (total == 0) continue;
    tutti::grad::divide(std::span{mean}, total);
    rule(std::span{p}, std::span<const T>{mean}, slots, ++taken);
  }
  return p;
}

}  // namespace undivided
